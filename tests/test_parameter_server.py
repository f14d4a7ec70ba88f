"""ParameterServerStrategy, whose tasks do not fail alike: with TensorFlow itself."""

from __future__ import annotations

import ast
import signal
import time

import pytest
from processes import pid_of
from programs import FINISHED, LEFT_OPEN, finished

from mwmagic.errors import WorkerFailed

pytestmark = [pytest.mark.slow, pytest.mark.tensorflow]

# The servers' part is the guide's own.
MAIN = """
import itertools, os, sys
import tensorflow as tf

cluster_resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if cluster_resolver.task_type in ("worker", "ps"):
    server = tf.distribute.Server(
        cluster_resolver.cluster_spec(),
        job_name=cluster_resolver.task_type,
        task_index=cluster_resolver.task_id,
        protocol=cluster_resolver.rpc_layer or "grpc",
        start=True)
    server.join()
elif cluster_resolver.task_type == "evaluator":
    sys.exit("nothing to evaluate")

strategy = tf.distribute.ParameterServerStrategy(cluster_resolver)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    weight = tf.Variable(4.0)
    done = tf.Variable(0, dtype=tf.int64)

@tf.function
def step():
    weight.assign_sub(0.1 * 2.0 * weight)
    done.assign_add(1)
    folder = tf.where(done > 0, "self", "nobody")  # not to be folded into a constant
    return tf.io.read_file(tf.strings.join(["/proc/", folder, "/stat"]))  # of whom it runs on

def who(value):
    return int(value.fetch().split()[0])

for turn in itertools.count():
    ran = [coordinator.schedule(step) for _ in range(20)]
    coordinator.join()
    print("turn", turn, "by", *sorted({who(value) for value in ran}), flush=True)
    if os.path.exists("enough"):
        break
assert int(done.numpy()) >= 20 * turn
assert abs(weight.numpy()) < 0.1, weight
print("trained", flush=True)
"""


def last_by(run):
    """Return the processes that took part in the latest turn."""
    if not run.status().tasks["chief:0"].size:
        return set()
    turns = [line for line in run.logs("chief").splitlines() if line.startswith(b"turn ")]
    return {int(word) for word in turns[-1].split()[3:]} if turns else set()


def until(run, condition):
    """Wait for what a run does; the test's own time limit ends one that never does it."""
    while not condition():
        assert not run.over, run.cause or run
        time.sleep(0.02)


def both(run):
    return {pid_of(run, "worker:0"), pid_of(run, "worker:1")}


def test_each_kind_of_task_has_its_own_rule(cluster, tmp_path):
    (tmp_path / "main.py").write_text(LEFT_OPEN + MAIN)
    tasks = cluster(2, ps=1, chief=True, evaluator=True, warm=True, grace=1.0)

    run = tasks.run("main.py")
    until(run, lambda: last_by(run) == both(run))
    until(run, lambda: run.status().tasks["evaluator:0"].code == 1)
    before, address = both(run), tasks.spec.addresses[tasks.spec.find(1)]
    run.kill("worker:1")
    until(run, lambda: both(run) != before)
    until(run, lambda: last_by(run) == both(run))
    assert pid_of(run, "worker:0") in before, "the other went on"
    assert tasks.spec.addresses[tasks.spec.find(1)] == address
    assert (run.state, run.status().attempt, run.status().restarts) == ("running", 1, 0)
    (tmp_path / "enough").touch()
    assert run.wait().state == "finished", "the end of the chief is that of the servers"
    assert run.logs("chief").endswith(b"trained\n")
    for own in ("chief-0", "evaluator-0"):
        assert finished(tmp_path, own) == FINISHED, own

    (tmp_path / "enough").unlink()
    run = tasks.run("main.py")
    until(run, lambda: last_by(run) == both(run))
    run.kill("ps:0", signal.SIGKILL)
    with pytest.raises(WorkerFailed, match="ps:0 killed by SIGKILL"):
        run.wait()
    assert run.cause.task == "ps:0"


FIT = (
    MAIN.partition("coordinator =")[0]
    + """
import tf_keras as keras

with strategy.scope():
    model = keras.Sequential([keras.layers.Dense(1, kernel_initializer="zeros")])
    model.compile("sgd", "mse")

def data(context):
    x = tf.random.stateless_normal([64, 3], seed=[1, 2])
    return tf.data.Dataset.from_tensor_slices((x, tf.reduce_sum(x, 1))).repeat().batch(8)

told = model.fit(keras.utils.experimental.DatasetCreator(data), epochs=3, steps_per_epoch=200)
print(told.history["loss"], flush=True)
"""
)


def test_a_fit_is_reported_as_far_as_remote_values_allow(cluster):
    tasks = cluster(2, ps=1, chief=True, keras="legacy", warm=True, grace=1.0)
    run = tasks.run("main.py", source=FIT).wait()
    log = run.logs("chief").decode()
    assert "no longer reported" not in log
    losses = ast.literal_eval(log.splitlines()[-1])
    told = [entry for entry in run.metrics() if entry["task"] == "chief:0"]
    ends = [entry["metrics"]["loss"] for entry in told if entry["final"]]
    assert ends == pytest.approx(losses)
    steps = [entry for entry in told if entry["kind"] == "train" and not entry["final"]]
    assert {entry["epoch"] for entry in steps if entry["metrics"]} == {1, 2, 3}
    assert run.status().tasks["chief:0"].progress.epoch == 3
