"""Real two-worker TensorFlow training through the Python interface."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from latecomer import LATE

from mwmagic.errors import NotInstalled, RunStopped

pytestmark = [pytest.mark.slow, pytest.mark.tensorflow]

TRAIN = """
import json, os
import numpy as np
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
print("said by", WHO, flush=True)
x = np.linspace(0, 1, 64, dtype="float32").reshape(-1, 1)
data = tf.data.Dataset.from_tensor_slices((x, 3 * x + 1)).batch(16).repeat()
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, kernel_initializer="zeros")])
    model.compile(optimizer=tf.keras.optimizers.SGD(0.1), loss="mse")
model.fit(data, epochs=2, steps_per_epoch=4, verbose=2)
"""
FOREVER = TRAIN.replace("epochs=2", "epochs=100000")

SEVERAL = f"""
import tensorflow as tf

def adding(count):
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        one = tf.Variable(tf.ones(count))
    return tf.function(lambda: strategy.run(
        lambda: tf.distribute.get_replica_context().all_reduce("sum", one.read_value())))

def sums(adders):
    return [float(tf.reduce_sum(add())) for add in adders]

adders = [adding(1)]
{LATE}
adders += [adding(2), adding(3)]
for _ in range(4):
    assert sums(adders[1:2]) == [4.0]
for _ in range(6):
    assert sums(adders) == [2.0, 4.0, 6.0]
"""


def launch(cluster, code, **options):
    return cluster.run("main.py", source=code, cwd=cluster.options.root, **options)


def test_the_first_task_waits_for_the_second_and_then_they_train(warm_pair):
    run = launch(warm_pair, TRAIN.replace("WHO", "'the first cell'"), task=0)
    assert run.words == "waiting for worker:1, not launched"
    warm_pair._connection.wait(lambda _: run.status().tasks["worker:0"].waits, 120)
    waits = run.status().tasks["worker:0"].waits
    assert waits == ("worker:1",), (run.status(), run.logs(0))
    assert run.words == "waiting for worker:1, not launched"
    launch(warm_pair, TRAIN.replace("WHO", "'the second cell'"), task="worker:1").wait(120)
    assert b"said by the first cell" in run.logs(0)
    assert b"said by the second cell" in run.logs(1)
    last = {m["task"]: m["metrics"]["loss"] for m in run.record.metrics() if m["final"]}
    assert last["worker:0"] == last["worker:1"]
    losses = [m["metrics"]["loss"] for m in run.record.metrics() if m["task"] == "worker:0"]
    assert losses[-1] < losses[0]
    assert run.status().tasks["worker:0"].warm, "it was forked, not started cold"


def test_the_workers_meet_whatever_proxies_are_set(warm_pair):
    dead = "http://127.0.0.1:9"
    names = [f"{name}_proxy" for name in ("http", "https", "grpc", "all")]
    proxies = dict.fromkeys([*names, *map(str.upper, names)], dead)
    others = dict.fromkeys(("no_proxy", "NO_PROXY", "no_grpc_proxy"), ".intern.example")
    told = "{n: v for n, v in os.environ.items() if n.lower().endswith('_proxy')}"
    run = launch(warm_pair, TRAIN.replace("WHO", f"json.dumps({told})"), env=proxies | others)
    run.wait(120)
    found = json.loads(run.logs(1).decode().partition("said by ")[2].splitlines()[0])
    assert found.pop("no_grpc_proxy").startswith(".intern.example,localhost")
    assert {**found, "no_grpc_proxy": ".intern.example"} == proxies | others


@pytest.mark.parametrize(
    "start",
    [
        "subprocess.run([sys.executable, 'train.py'], check=True)",
        "os.execv(sys.executable, [sys.executable, 'train.py'])",
    ],
    ids=["subprocess", "exec"],
)
def test_a_python_that_a_worker_starts_or_becomes_trains_as_the_worker(warm_pair, start):
    def losses(code):
        run = launch(warm_pair, code)
        run.wait(120)
        return [re.findall(r"loss: ([\d.]+)", run.logs(task).decode()) for task in (0, 1)]

    train = TRAIN.replace("WHO", "'a task'")
    Path(warm_pair.options.root, "train.py").write_text(train)
    found = losses(f"import os, subprocess, sys\n{start}\n")
    assert found == losses(train)
    assert [len(one) for one in found] == [2, 2]


def test_a_training_run_stops_though_tensorflow_swallows_sigterm(warm_pair):
    ports = json.loads(warm_pair.tf_config(0))["cluster"]["worker"]
    run = launch(warm_pair, FOREVER.replace("WHO", "1"))
    warm_pair._connection.wait(lambda _: run.words == "training", 120)
    run.stop()
    assert [task.signal for task in run.status().tasks.values()] == [9, 9]
    with pytest.raises(RunStopped):
        run.wait()
    assert json.loads(warm_pair.tf_config(1))["cluster"]["worker"] == ports
    assert launch(warm_pair, TRAIN.replace("WHO", "2")).wait(120).state == "finished"


def test_a_program_makes_several_strategies_and_uses_them_in_turn(warm_pair):
    run = launch(warm_pair, SEVERAL).wait(120)
    assert [task.code for task in run.status().tasks.values()] == [0, 0]


def test_code_whose_framework_is_missing_is_refused_in_one_line(warm_pair):
    with pytest.raises(NotInstalled, match=r'^torch is not installed: pip install "torch"$'):
        launch(warm_pair, "import torch\n")
