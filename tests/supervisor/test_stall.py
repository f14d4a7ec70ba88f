"""When a gang counts as stalled, and what is said of it then."""

from __future__ import annotations

from contextlib import suppress

import pytest
from processes import eventually

from mwmagic.agent.system import waits_for_signals
from mwmagic.client.cluster import Cluster
from mwmagic.errors import NoRun, SupervisorError, WorkerFailed
from mwmagic.model.findings import Position, Symptom, Whereabouts
from mwmagic.supervisor.stalls import Watchdog

STUCK = """
import json, os, time
index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
attempt = int(os.environ["MWMAGIC_ATTEMPT"])
def load_more():
    time.sleep(600)
print("up", flush=True)
if attempt == 1:
    load_more()
"""
AT = "main.py:6 in load_more"
TENSORFLOW = """
import json, os, time
import tensorflow as tf
index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
strategy = tf.distribute.MultiWorkerMirroredStrategy()
@tf.function
def total():
    def one():
        return tf.distribute.get_replica_context().all_reduce("sum", tf.ones(()))
    return strategy.run(one)
print(float(total()), flush=True)
def load_more():
    time.sleep(600)
if index == 1:
    load_more()
total()
"""


def test_silence_and_idleness_of_all_is_a_stall():
    watchdog = Watchdog(10.0)
    for time in range(31):
        for task in "ab":
            watchdog.seen(task, time=time, size=5, cpu=0.001 * time)
        assert watchdog.stalled(time) == (time >= 10)


@pytest.mark.parametrize(("size", "cpu"), [(1, 0.0), (0, 0.5)])
def test_output_or_cpu_time_of_one_task_is_progress(size, cpu):
    watchdog = Watchdog(10.0)
    for time in range(100):
        watchdog.seen("a", time=time, size=0, cpu=0.0)
        watchdog.seen("b", time=time, size=size * time, cpu=cpu * time)
        assert not watchdog.stalled(time)


def test_those_left_by_a_task_that_ended_have_the_full_time_again():
    watchdog = Watchdog(10.0)
    for time in range(9):
        watchdog.seen("a", time=time, size=0, cpu=0.0)
        watchdog.seen("b", time=time, size=0, cpu=0.0)
    watchdog.gone("b")
    for time in range(9, 18):
        watchdog.seen("a", time=time, size=0, cpu=0.0)
        assert not watchdog.stalled(time)
    assert watchdog.stalled(18)


def test_after_a_person_was_waited_for_all_have_the_full_time_again():
    watchdog = Watchdog(10.0)
    for time in (0.0, 50.0):
        watchdog.seen("worker:0", time=time, size=1, cpu=1.0)
    watchdog.hold(50.0)
    assert not watchdog.stalled(59.0)
    assert watchdog.stalled(60.0)


def test_a_timeout_of_zero_is_never():
    watchdog = Watchdog(0.0)
    watchdog.seen("a", time=0.0, size=0, cpu=0.0)
    assert not watchdog.stalled(1e9)


def stalled(run):
    run._connection.wait(lambda _: run.over or run.status().stall, 120)
    assert not run.over, run.cause
    return run.status().stall


@pytest.mark.slow
def test_a_stalled_run_says_where_each_task_is(tmp_path):
    (tmp_path / "main.py").write_text(STUCK)
    at = tuple(Position(f"worker:{i}", Whereabouts.IN_USER_CODE, AT) for i in (0, 1))
    with Cluster(2, warm=False, stall_timeout=1.5, directory=tmp_path) as cluster:
        run = cluster.run("main.py", cwd=tmp_path)
        # On a busy machine the start may stall as well.
        found = lambda: (stall := run.status().stall) and stall.positions == at and stall  # noqa: E731
        stall = eventually(found, run.status)
        assert stall.guilty == "worker:0"
        stacks = run.stacks()
        assert run.words == f"stalled: {stacks.lines[0]}"
        assert stacks.positions == stall.positions
        assert (
            stacks.lines[1] == f"worker:1 is at {AT}, in Python code rather than in the framework"
        )
        assert "load_more" in stacks.texts["worker:1"]
        assert f"--- worker:1 ---\n{stacks.texts['worker:1']}" in stacks.full


UNUSUAL = """
import contextlib, json, os, signal, sys, time
index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
signal.signal(signal.SIGUSR1, [signal.SIG_DFL, lambda *_: sys.exit(9)][index % 2])
if index == 2:
    os.execv(sys.executable, [sys.executable, "-c", "print('up', flush=True); input()"])
for number in signal.valid_signals() if index == 3 else ():
    with contextlib.suppress(OSError):
        signal.signal(number, lambda *_: os._exit(9))
if index == 4:
    os.closerange(3, 4096)
    mine = [open("mine", "w") for _ in range(64)]  # one has the number that ours had
if index == 5:
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
print("up", flush=True)
if index == 6:
    signal.pause()
    sys.exit(9)
time.sleep(600)
"""


@pytest.mark.slow
def test_looking_into_tasks_ends_none_and_calls_no_handler_of_theirs(tmp_path):
    (tmp_path / "main.py").write_text(UNUSUAL.replace("input()", "import time; time.sleep(600)"))
    with Cluster(7, warm=False, directory=tmp_path) as cluster:
        run = cluster.run("main.py", cwd=tmp_path)
        logs = [run.directory / f"attempt-1/worker-{index}.log" for index in range(7)]
        eventually(lambda: [log.exists() and log.read_bytes() for log in logs] == [b"up\n"] * 7)
        eventually(lambda: waits_for_signals(run.status().tasks["worker:6"].pid), "pause")
        found = {one.task: one.whereabouts for one in run.stacks().positions}
        assert found == {
            "worker:0": Whereabouts.IN_USER_CODE,
            "worker:1": Whereabouts.IN_USER_CODE,
            **dict.fromkeys([f"worker:{index}" for index in range(2, 7)], Whereabouts.NO_HANDLER),
        }
        assert not run.over
        assert not (tmp_path / "mine").read_bytes()
        assert not [one.state for one in run.status().tasks.values() if one.state != "running"]


@pytest.mark.slow
def test_workers_that_are_only_starting_survive_being_asked(tmp_path):
    (tmp_path / "main.py").write_text("pass")
    with Cluster(4, warm=False, directory=tmp_path) as cluster:
        run = cluster.run("main.py", cwd=tmp_path)
        while not run.over:
            with suppress(NoRun, SupervisorError):
                run.stacks()
        run.wait(120)


@pytest.mark.slow
def test_a_stall_that_resolves_is_over(tmp_path):
    wait = "import os, time\nprint('up', flush=True)\nwhile not os.path.exists('go'): time.sleep(1)"
    (tmp_path / "main.py").write_text(wait)
    with Cluster(2, warm=False, stall_timeout=1.5, directory=tmp_path) as cluster:
        run = cluster.run("main.py", cwd=tmp_path)
        assert stalled(run)
        (tmp_path / "go").touch()
        run.wait(120)
        assert run.status().stall is None
        assert run.record.status.stall is None
        kinds = [event["event"] for event in run.record.events()]
        assert kinds.index("stalled") < kinds.index("resumed") < kinds.index("ended")


@pytest.mark.slow
def test_a_stall_can_be_made_a_failure(tmp_path):
    (tmp_path / "main.py").write_text(STUCK)
    options = {"warm": False, "stall_timeout": 5.0, "on_stall": "restart", "directory": tmp_path}
    with Cluster(2, restarts=1, **options) as cluster:
        assert cluster.run("main.py", cwd=tmp_path).wait(120).status().attempt == 2
    with Cluster(2, restarts=0, **options) as cluster:
        with pytest.raises(WorkerFailed, match="worker:0 made no progress for") as caught:
            cluster.run("main.py", cwd=tmp_path).wait(120)
        assert caught.value.cause.task == "worker:0"
        assert caught.value.cause.symptom is Symptom.STALLED


@pytest.mark.slow
@pytest.mark.tensorflow
def test_the_task_outside_the_collective_is_told_from_those_inside(tmp_path):
    (tmp_path / "main.py").write_text(TENSORFLOW)
    at = (
        Position("worker:1", Whereabouts.IN_USER_CODE, "main.py:13 in load_more"),
        Position("worker:0", Whereabouts.IN_FRAMEWORK, "main.py:16 in <module>"),
    )
    with Cluster(2, stall_timeout=5.0, directory=tmp_path) as cluster:
        run = cluster.run("main.py", cwd=tmp_path)
        found = lambda _: (stall := run.status().stall) and stall.positions == at  # noqa: E731
        # Two imports of TensorFlow have taken two minutes on a busy machine.
        assert run._connection.wait(found, 300), run.status()
