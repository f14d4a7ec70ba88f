"""When a gang counts as stalled, and what is said of it then."""

from __future__ import annotations

import pytest

from mwmagic.client.cluster import Cluster
from mwmagic.errors import WorkerFailed
from mwmagic.supervisor.stall import Stall

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
    stall = Stall(10.0)
    for time in range(31):
        for task in "ab":
            stall.seen(task, time=time, size=5, cpu=0.001 * time)
        assert stall.stalled(time) == (time >= 10)


@pytest.mark.parametrize(("size", "cpu"), [(1, 0.0), (0, 0.5)])
def test_output_or_cpu_time_of_one_task_is_progress(size, cpu):
    stall = Stall(10.0)
    for time in range(100):
        stall.seen("a", time=time, size=0, cpu=0.0)
        stall.seen("b", time=time, size=size * time, cpu=cpu * time)
        assert not stall.stalled(time)


def test_those_left_by_a_task_that_ended_have_the_full_time_again():
    stall = Stall(10.0)
    for time in range(9):
        stall.seen("a", time=time, size=0, cpu=0.0)
        stall.seen("b", time=time, size=0, cpu=0.0)
    stall.gone("b")
    for time in range(9, 18):
        stall.seen("a", time=time, size=0, cpu=0.0)
        assert not stall.stalled(time)
    assert stall.stalled(18)


def test_a_timeout_of_zero_is_never():
    stall = Stall(0.0)
    stall.seen("a", time=0.0, size=0, cpu=0.0)
    assert not stall.stalled(1e9)


def stalled(run):
    run._connection.wait(lambda _: run.over or run.status().stall, 60)
    assert not run.over, run.cause
    return run.status().stall


@pytest.mark.slow
def test_a_stalled_run_says_where_each_task_is(tmp_path):
    (tmp_path / "main.py").write_text(STUCK)
    with Cluster(2, warm=False, stall=1.5, directory=tmp_path) as cluster:
        run = cluster.run("main.py", cwd=tmp_path)
        lines = list(stalled(run).lines)
        assert lines == [
            f"worker:{i} is at main.py:6 in load_more, outside any operation of the framework"
            for i in (0, 1)
        ]
        assert run.words == f"stalled: {lines[0]}"
        assert run.stacks()["lines"] == lines
        assert "load_more" in run.stacks()["texts"]["worker:1"]


@pytest.mark.slow
def test_a_stall_can_be_made_a_failure(tmp_path):
    (tmp_path / "main.py").write_text(STUCK)
    options = {"warm": False, "stall": 1.5, "on_stall": "restart", "directory": tmp_path}
    with Cluster(2, restarts=1, **options) as cluster:
        assert cluster.run("main.py", cwd=tmp_path).wait(60).status().attempt == 2
    with Cluster(2, restarts=0, **options) as cluster:
        with pytest.raises(WorkerFailed, match="worker:0 made no progress for") as caught:
            cluster.run("main.py", cwd=tmp_path).wait(60)
        assert caught.value.cause.task == "worker:0"


@pytest.mark.slow
@pytest.mark.tensorflow
def test_the_task_outside_the_collective_is_told_from_those_inside(tmp_path):
    (tmp_path / "main.py").write_text(TENSORFLOW)
    with Cluster(2, stall=5.0, directory=tmp_path) as cluster:
        lines = list(stalled(cluster.run("main.py", cwd=tmp_path)).lines)
    assert lines == [
        "worker:1 is at main.py:13 in load_more, outside any operation of the framework",
        "worker:0 waits inside an operation of the framework, at main.py:16 in <module>",
    ]
