"""How long 400 steps of training take, once it goes, with two workers."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial

from .case import Case, Line
from .clusters import by_hand, cluster, folder
from .ratio import alternated

STEPS = 400
PROGRAM = f"""
import json, os, sys, time
import tensorflow as tf
import tf_keras
strategy = tf.distribute.MultiWorkerMirroredStrategy()
x = tf.random.stateless_normal((1024, 64), (1, 2))
y = tf.zeros((1024,), tf.int32)
data = tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(64)
layers = tf_keras.layers
with strategy.scope():
    model = tf_keras.Sequential([layers.Input((64,)), layers.Dense(256, "relu"), layers.Dense(10)])
    loss = tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss=loss, metrics=["accuracy"])
model.fit(data, epochs=1, steps_per_epoch=20, verbose=0)
began = time.perf_counter()
model.fit(data, epochs=1, steps_per_epoch={STEPS}, verbose=2)
took = time.perf_counter() - began
index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
open(f"took.{{index}}", "w").write(str(took))
sys.stdout.flush()
os._exit(0)
"""
"""The same Keras in both, so that only mwmagic differs."""


def took(path):
    return max(float((path / f"took.{index}").read_text()) for index in (0, 1))


def in_mwmagic(one, path):
    one.run("main.py", cwd=path).wait()
    return took(path)


def from_shell(path):
    for process in by_hand(path, 2, tf_config=True):
        process.wait()
    return took(path)


def measure(plan):
    with ExitStack() as stack:
        path, other = (stack.enter_context(folder(PROGRAM)) for _ in range(2))
        one = stack.enter_context(cluster(2, path, warm=True, threads=0))
        calls = {"mwmagic": partial(in_mwmagic, one, path), "hand": partial(from_shell, other)}
        found = alternated(plan.rounds(9, 2), **calls)
    yield Line(f"{STEPS} steps of training", "s", found["mwmagic"], "by hand", found["hand"], 1.01)


CASES = [Case("throughput", f"{STEPS} steps of training, against by hand", measure)]
