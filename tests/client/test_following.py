"""Lines as the tasks of a run print them."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace

import pytest
from processes import eventually

from mwmagic.client import reading
from mwmagic.client.reading import Following, pieces, read
from mwmagic.errors import ClusterError, SupervisorLost
from mwmagic.logs.lines import Lines
from mwmagic.model.status import RunState, RunStatus, TaskStatus

NOTICE = b"WARNING: All log messages before absl::InitializeLog() is called are written to STDERR\n"


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


def test_a_late_follower_sees_the_current_attempt(run):
    run.print("worker:0", b"one\n")
    run.attempt = 2
    run.print("worker:0", b"two\n")
    assert Following(run).new() == [("worker:0", "two")]


def test_notices_are_left_out_unless_asked_for(run):
    run.print("worker:0", NOTICE + b"mine\n")
    told = "1 line of framework notices hidden, `--raw` shows them"
    assert Following(run).new() == [("worker:0", told), ("worker:0", "mine")]
    assert len(Following(run, raw=True).new()) == 2


def test_notices_that_go_on_are_counted_once(run):
    following = Following(run)
    told = "3 lines of framework notices hidden, `--raw` shows them"
    for _ in range(3):
        run.print("worker:0", NOTICE)
        assert following.new() == []
    run.print("worker:0", b"mine\n" + NOTICE)
    assert following.new() == [("worker:0", told), ("worker:0", "mine")]
    run.over = True
    assert following.new() == [("worker:0", told.replace("3 lines", "1 line"))]


def test_raw_is_every_byte_as_in_a_recorded_log(run):
    text = NOTICE.decode() + "1%\r100%\n\x1b[1mbold\n"
    run.print("worker:0", text.encode())
    lines = [line for _, line in Following(run, raw=True).new()]
    assert lines == text[:-1].split("\n") == read(Path(run.log("worker:0")), raw=True)


@pytest.mark.slow
def test_a_late_follower_begins_with_the_last_lines_of_each_task(run, monkeypatch):
    fed = []
    feed = Lines.feed
    monkeypatch.setattr(Lines, "feed", lambda self, data: fed.append(len(data)) or feed(self, data))
    run.print("worker:0", b"".join(b"line %d\n" % number for number in range(60_000)) + b"half")
    run.print("worker:1", b"one\n")
    following = Following(run, tail=2)
    told = "... earlier lines not shown, `--tail 0` shows them"
    last = [("worker:0", line) for line in (told, "line 59998", "line 59999")]
    assert following.new() == [*last, ("worker:1", "one")]
    assert sum(fed) <= reading.TAIL_BYTES[0] + 10
    run.print("worker:0", b" and half\n" + b"more\n" * 5)
    new = [line for _, line in following.new()]
    assert new == ["half and half", *["more"] * 5]


@pytest.mark.slow
@pytest.mark.parametrize("raw", [False, True])
def test_what_a_late_follower_begins_with_is_bounded_for_all_tasks_together(run, raw):
    for name in run.names:
        run.print(name, (b"z" * 10_000 + b"\n") * 1000 + b"y" * 5_000_000 + b"\nlast\n")
    lines = Following(run, raw=raw, tail=900).new()
    assert sum(len(line) for _, line in lines) <= reading.TAIL_CHARACTERS + 1000
    for name in run.names:
        own = [line for task, line in lines if task == name]
        assert own[0].startswith("... ")
        assert own[-2].endswith(f"characters; see {run.log(name)})")
        assert own[-1] == "last"


def test_a_follower_takes_only_lines_that_match(run):
    run.print("worker:0", NOTICE + b"loss: 1\nother\nloss: 2\n")
    following = Following(run, grep="loss", tail=1)
    told = "... 1 earlier line not shown, `--tail 0` shows them"
    assert following.new() == [("worker:0", told), ("worker:0", "loss: 2")]
    run.print("worker:0", b"loss: 3\nother\n")
    assert following.new() == [("worker:0", "loss: 3")]


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
    lines = [line for found in pieces(run, 1) for task, line in found if task == "worker:1"]
    assert lines == ["1 0", "1 1", "1 2", "end", "2 0", "2 1", "2 2", "end"]
    assert run.state == "finished"
    assert {task for found in pieces(run) for task, _ in found} == {"worker:0", "worker:1"}
    with pytest.raises(ClusterError, match="worker:7"):
        next(pieces(run, 7))


@pytest.mark.slow
def test_a_lost_supervisor_ends_the_following(cluster):
    one = cluster(1)
    run = one.run("main.py", source="import time; print('up', flush=True); time.sleep(600)")
    eventually(lambda: run.status().tasks["worker:0"].size)
    lines = (line for found in pieces(run) for line in found)
    assert next(lines) == ("worker:0", "up")
    os.kill(one._process.pid, signal.SIGKILL)
    with pytest.raises(SupervisorLost):
        next(lines)


def test_what_an_earlier_attempt_prints_late_is_shown(run):
    """As its agent writes it that was stopped, was lost, and goes on."""
    following = Following(run)
    run.print("worker:0", b"first\n")
    assert following.new() == [("worker:0", "first")]
    run.attempt = 2
    run.print("worker:0", b"again\n")
    assert following.new() == [("worker:0", "again")]
    run.print("worker:0", b"late\n", attempt=1)
    assert following.new() == [("worker:0", "late")]
    assert following.new() == []
