"""What it costs to find out why steps are slow: the same workers' steps with it and without."""

from __future__ import annotations

import json

from .case import Case, Line
from .clusters import cluster, folder

STEPS = 400
LEAST_STEPS = 1500
"""So many steps go before: the windows of a training's first seconds follow each other quickly."""

PROGRAM = f"""
import json, sys, time
import tensorflow as tf
import mwmagic.worker.watch as watch
from mwmagic.worker import this_task
ROUNDS = 2
strategy = tf.distribute.MultiWorkerMirroredStrategy()
x = tf.random.stateless_normal((2048, 256), (1, 2))
y = tf.zeros((2048,), tf.int32)
data = tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(512).prefetch(2)
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
data = data.with_options(options)
with strategy.scope():
    dense = [tf.keras.layers.Dense(256, "relu") for _ in range(8)]
    layers = [tf.keras.layers.Input((256,)), *dense, tf.keras.layers.Dense(10)]
    model = tf.keras.Sequential(layers)
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss=loss)
make, samplers = watch.sampler, []


def sampler(box, model):
    # As in one long training: each `fit` continues with the sampler of the first.
    if not samplers:
        samplers.append(make(box, model))
    return samplers[0]


def fit(way, steps={STEPS}):
    watch.sampler = sampler if way == "on" else lambda *_: None
    wall, cpu = time.monotonic(), time.process_time()
    model.fit(data, epochs=1, steps_per_epoch=steps, verbose=0)
    return (time.monotonic() - wall) / steps, (time.process_time() - cpu) / steps


fit("on", {LEAST_STEPS})
fit("off")
found = {{"on": [], "off": []}}
for number in range(ROUNDS):
    for way in ("off", "on") if number % 2 else ("on", "off"):
        found[way].append(fit(way))
with open(f"found.{{this_task().index}}", "w") as file:
    json.dump(found, file)
"""
"""Each worker alternates, so that both ways meet the same machine."""


def figures(each, at, together):
    """Return the figures of each round, of all workers together, for each way."""
    return {
        way: [together(pair[at] for pair in pairs) for pairs in zip(*ways, strict=True)]
        for way in ("on", "off")
        for ways in [[one[way] for one in each]]
    }


def measure(plan):
    with folder(PROGRAM) as path, cluster(2, path, warm=True, threads=0) as one:
        params = {"ROUNDS": plan.rounds(20, 4)}
        one.run("main.py", cwd=path, params=params).wait()
        each = [json.loads((path / f"found.{index}").read_text()) for index in (0, 1)]
    walls, cpus = figures(each, 0, max), figures(each, 1, sum)
    what, against = "while it is measured why steps are slow", "without"
    yield Line(f"a step {what}", "s", walls["on"], against, walls["off"], 1.005)
    what = f"the CPU time of both workers in a step {what}"
    yield Line(what, "s", cpus["on"], against, cpus["off"], 1.005)


CASES = [Case("slowness", "the cost of measuring why steps are slow", measure, slow=True)]
