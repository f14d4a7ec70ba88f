"""Runs whose tasks are launched one by one."""

from __future__ import annotations

from contextlib import contextmanager

import psutil
import pytest
from processes import alive, eventually, pid_of

from mwmagic import Task
from mwmagic.client.run import launch
from mwmagic.errors import (
    ClusterError,
    FileTrouble,
    RunActive,
    RunStopped,
    WaitTimeout,
    WorkerFailed,
)
from mwmagic.model.messages import Launch

pytestmark = pytest.mark.slow

SLEEP = "import time; print('up', flush=True); time.sleep(600)"
WAIT = """
import pathlib, time
print('up', flush=True)
while not pathlib.Path('go').exists():
    time.sleep(0.01)
"""


def test_a_task_launched_alone_waits_for_the_others(cluster, tmp_path):
    one = cluster(2)
    run = one.run("main.py", task=0, source=WAIT)
    assert run.state == "forming"
    assert run.words == "waiting for worker:1, not launched"
    assert not run.over
    pid_of(run, "worker:0")
    with pytest.raises(WaitTimeout, match=r"run 1 is still going after 0.01 s.*waiting for worker"):
        run.wait(0.01)
    other = one.run("other.py", task="worker:1", source="print('other code')\n" + WAIT)
    assert other.number == run.number
    assert other.state == "running"
    (tmp_path / "go").touch()
    assert run.wait(120).state == "finished"
    assert (run.logs(0), run.logs(Task("worker", 1))) == (b"up\n", b"other code\nup\n")
    assert (run.directory / "main.worker-0.py").read_text() == WAIT
    assert (run.directory / "other.worker-1.py").read_text().startswith("print('other code')")


def test_the_words_name_every_task_that_is_missing(cluster):
    run = cluster(3, chief=True).run("main.py", task=1, source=SLEEP)
    words = "waiting for chief:0, worker:0, worker:2, not launched"
    assert run.words == words


def test_a_task_may_finish_before_the_others_are_launched(cluster):
    one = cluster(2)
    run = one.run("main.py", task=1, source="print('early')")
    eventually(lambda: run.status().tasks["worker:1"].state == "ended")
    assert run.state == "forming"
    one.run("main.py", task=0, source="print('late')")
    assert run.wait(120).logs(1) == b"early\n"


def test_a_task_launched_again_replaces_the_one_that_waits(cluster):
    one = cluster(2)
    run = one.run("main.py", task=0, source=SLEEP)
    first = pid_of(run, "worker:0")
    again = one.run("main.py", task=0, source="print('second', flush=True)\n" + SLEEP)
    assert again.number == run.number
    second = eventually(lambda: pid_of(run, "worker:0") != first and pid_of(run, "worker:0"))
    assert not alive(first)
    assert run.state == "forming"
    eventually(lambda: run.logs(0).endswith(b"second\nup\n"))
    assert alive(second)
    assert (run.directory / "main.worker-0.py").read_text().startswith("print('second'")


def test_launching_everybody_while_one_waits_joins_the_same_run(cluster):
    one = cluster(2)
    run = one.run("main.py", task=0, source=SLEEP)
    pid_of(run, "worker:0")
    assert one.run("main.py", source="print('both')").number == run.number
    assert run.wait(120).logs(0).endswith(b"both\n")
    assert run.logs(1) == b"both\n"


def test_a_failure_while_others_are_missing_ends_the_run(cluster):
    one = cluster(2)
    run = one.run("main.py", task=0, source="raise ValueError('too soon')")
    with pytest.raises(WorkerFailed, match="worker:0 exited with code 1: ValueError: too soon"):
        run.wait(120)
    assert one.run("main.py", source="print('next')").wait(120).number == 2


def test_a_run_that_waits_for_tasks_is_stopped(cluster):
    one = cluster(2)
    run = one.run("main.py", task=0, source=SLEEP)
    pid = pid_of(run, "worker:0")
    run.stop()
    assert run.state == "stopped"
    assert not alive(pid)
    with pytest.raises(RunStopped, match="run 1 was stopped"):
        run.wait(120)
    assert one.run("main.py", task=0, source=SLEEP).number == 2


def test_a_busy_cluster_refuses_another_run(cluster):
    one = cluster(1)
    one.run("main.py", source=SLEEP)
    with pytest.raises(RunActive, match=r"run 1 is still going \(.+\); wait for it, stop it, or "):
        one.run("main.py", source=SLEEP)
    assert len(list((one.options.root / ".mwmagic/runs").glob("0*"))) == 1


def test_what_cannot_be_launched_is_refused_before_there_is_a_run(cluster, tmp_path):
    one = cluster(2)
    with pytest.raises(ClusterError, match="worker:5"):
        one.run("main.py", task=5, source=SLEEP)
    with pytest.raises(FileNotFoundError, match=r"there is no file .*nothing\.py"):
        one.run("nothing.py")
    with pytest.raises(FileNotFoundError, match="to run"):
        one.run(tmp_path)
    assert one.latest is None


@contextmanager
def space(one, limit):
    """Let a cluster's supervisor write no file with more bytes than that."""
    supervisor = psutil.Process(one._process.pid)
    before = supervisor.rlimit(psutil.RLIMIT_FSIZE)
    supervisor.rlimit(psutil.RLIMIT_FSIZE, (limit, before[1]))
    yield
    supervisor.rlimit(psutil.RLIMIT_FSIZE, before)


def test_a_launch_that_finds_no_space_leaves_all_as_it_was(cluster, tmp_path):
    one = cluster(2)
    full = "the run cannot be recorded: there is no space left for"
    code = "#" * 20_000
    first = one.run("main.py", source=code).wait(120)
    with space(one, 10_000):
        with pytest.raises(FileTrouble, match=full):
            one.run("main.py", source=code)
        with pytest.raises(FileTrouble, match=full):
            one.restart()
    assert one.latest.number == first.number
    assert [path.name for path in tmp_path.glob(".mwmagic/runs/0*")] == ["0001-main"]
    one.run("main.py", source="", task=0)
    with space(one, 10_000), pytest.raises(FileTrouble, match=full):
        one.run("main.py", source=code, task=1)
    assert one.latest.words == "waiting for worker:1, not launched"
    one.run("main.py", source="print('well')", task=1)
    assert one.latest.wait(120).logs(1) == b"well\n"


def test_a_cell_that_cannot_be_written_leaves_all_as_it_was(cluster, tmp_path):
    (tmp_path / "taken.py").mkdir()
    (tmp_path / "draft").touch()
    one = cluster(1)
    with pytest.raises(FileTrouble, match=r"the cell cannot be written: .*taken.py is a dir"):
        launch(one, Launch("taken.py", cwd=str(tmp_path)), "", None, draft=tmp_path / "draft")
    assert one.latest is None
    assert not list(tmp_path.glob(".mwmagic/runs/0*"))
    assert one.run("main.py", source="").wait(120).number == 1


def test_a_worker_that_cannot_be_started_says_why(cluster):
    one = cluster(1)
    with pytest.raises(WorkerFailed, match="cannot enter /nowhere"):
        one.run("main.py", source=SLEEP, cwd="/nowhere").wait(120)
    with pytest.raises(ClusterError, match="env must be a mapping from the names of variables"):
        one.run("main.py", source=SLEEP, env={"A=B": "c"})
    with pytest.raises(WorkerFailed, match="embedded null byte"):
        one.run("main.py", source=SLEEP, args=["a\0b"]).wait(120)
    assert one.run("main.py", source="print('well')").wait(120).logs(0) == b"well\n"


def test_arguments_and_variables_reach_the_worker(cluster, tmp_path):
    (tmp_path / "folder").mkdir()
    code = "import os, sys; print(sys.argv, os.environ['A'], os.environ['B'], os.getcwd())"
    one = cluster(1, env={"A": "1", "B": "1"})
    run = one.run(
        "main.py", source=code, args=["--x", 3, "é\udcff"], env={"B": 2.5}, cwd="folder"
    ).wait(120)
    text = run.logs(0).decode("utf-8", "surrogateescape")
    assert text == f"['main.py', '--x', '3', 'é\\udcff'] 1 2.5 {tmp_path / 'folder'}\n"
