"""Lines as the tasks of a run print them."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace

import pytest
from processes import eventually

from mwmagic.client.following import Following, follow
from mwmagic.errors import ClusterError, SupervisorLost
from mwmagic.model.status import RunState, RunStatus, TaskStatus


class Script:
    """A run that says of itself what the test tells it to."""

    def __init__(self, folder, *tasks):
        self.folder = folder
        self.attempt = 1
        self.over = False
        self.begun = set()
        self.cluster = SimpleNamespace(tasks=())
        self.names = tasks

    def status(self):
        tasks = {
            name: TaskStatus(log=self.log(name) if name in self.begun else None)
            for name in self.names
        }
        state = RunState.FINISHED if self.over else RunState.RUNNING
        return RunStatus(state=state, attempt=self.attempt, tasks=tasks)

    def log(self, name, attempt=None):
        folder = self.folder / f"attempt-{attempt or self.attempt}"
        folder.mkdir(exist_ok=True)
        return str(folder / f"{name.replace(':', '-')}.log")

    def print(self, name, text, attempt=None):
        self.begun.add(name)
        with Path(self.log(name, attempt)).open("ab") as file:
            file.write(text)


@pytest.fixture
def run(tmp_path):
    return Script(tmp_path, "worker:0", "worker:1")


def test_lines_come_once_and_when_they_are_finished(run):
    following = Following(run)
    assert following.new() == []
    run.print("worker:1", b"a\nb")
    assert following.new() == [("worker:1", "a")]
    assert following.new() == []
    run.print("worker:1", b"c\n")
    run.print("worker:0", b"x\n")
    assert following.new() == [("worker:0", "x"), ("worker:1", "bc")]
    run.print("worker:0", b"rest")
    run.over = True
    assert following.new() == [("worker:0", "rest")]


def test_every_attempt_is_read_to_its_end(run):
    following = Following(run)
    run.print("worker:0", b"one\nhalf")
    assert following.new() == [("worker:0", "one")]
    run.attempt = 4
    run.print("worker:0", b" and half", attempt=1)
    run.print("worker:0", b"too short to be seen", attempt=2)
    run.print("worker:0", b"four\n")
    assert following.new() == [
        ("worker:0", "half and half"),
        ("worker:0", "too short to be seen"),
        ("worker:0", "four"),
    ]
    assert following.new() == []


def test_who_comes_late_sees_the_attempt_that_goes_on(run):
    run.print("worker:0", b"one\n")
    run.attempt = 2
    run.print("worker:0", b"two\n")
    assert Following(run).new() == [("worker:0", "two")]


def test_notices_are_left_out_unless_asked_for(run):
    notice = (
        b"WARNING: All log messages before absl::InitializeLog() is called are written to STDERR"
    )
    run.print("worker:0", notice + b"\nmine\n")
    assert Following(run).new() == [("worker:0", "mine")]
    assert len(Following(run, raw=True).new()) == 2


def test_the_log_of_a_task_that_was_not_started_is_awaited(run):
    run.begun.add("worker:0")
    following = Following(run)
    assert following.new() == []
    run.print("worker:0", b"late\n")
    assert following.new() == [("worker:0", "late")]


@pytest.mark.slow
def test_a_run_is_followed_to_its_end(cluster):
    one = cluster(2, restarts=1)
    code = """
        import os
        attempt = os.environ["MWMAGIC_ATTEMPT"]
        for number in range(3):
            print(attempt, number)
        print("end", end="")
        os._exit(1 if attempt == "1" and os.environ["MWMAGIC_TASK"] == "worker:1" else 0)
    """
    run = one.run("main.py", source=dedent(code))
    lines = [line for task, line in follow(run, 1) if task == "worker:1"]
    assert lines == ["1 0", "1 1", "1 2", "end", "2 0", "2 1", "2 2", "end"]
    assert run.state == "finished"
    assert {task for task, _ in follow(run)} == {"worker:0", "worker:1"}
    with pytest.raises(ClusterError, match="worker:7"):
        next(follow(run, 7))


@pytest.mark.slow
def test_a_lost_supervisor_ends_the_following(cluster):
    one = cluster(1)
    run = one.run("main.py", source="import time; print('up', flush=True); time.sleep(600)")
    eventually(lambda: run.status().tasks["worker:0"].size)
    lines = follow(run)
    assert next(lines) == ("worker:0", "up")
    os.kill(one._process.pid, signal.SIGKILL)
    with pytest.raises(SupervisorLost):
        next(lines)
