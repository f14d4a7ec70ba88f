"""How fast Keras 3 with the repairs trains on two workers, compared with tf_keras.

Both libraries train the same networks in the same worker processes, one epoch each in turn, and
each equally often before and after the other, so that any other load on the machine affects both.
The networks are a small dense one, the convolutional one of the multi-worker tutorial, and the
latter with BatchNormalization. Processor time depends less on other load, but does not include
waiting. `keras-1` shows the difference between the libraries themselves.
"""

from __future__ import annotations

import json
from functools import partial

from .case import Case, Line
from .clusters import by_hand, folder

PROGRAM = """
import json, os, sys, time
os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "2", "TF_NUM_INTRAOP_THREADS": "1"}
import keras
import numpy as np
import tensorflow as tf
import tf_keras
import mwmagic.keras  # noqa: F401 - for its effect

WORKERS, PAIRS, STEPS = map(int, sys.argv[1:])
NETWORKS = ("dense", "convolutional", "normalised")


def network(keras, name):
    layers = keras.layers
    inner = [layers.Flatten(), layers.Dense(64, activation="relu")]
    if name != "dense":
        inner = [layers.Reshape((28, 28, 1)), layers.Conv2D(32, 3, activation="relu")]
        inner += [layers.BatchNormalization()] if name == "normalised" else []
        inner += [layers.Flatten(), layers.Dense(128, activation="relu")]
    model = keras.Sequential([keras.Input((28, 28)), *inner, layers.Dense(10)])
    model.compile(
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=keras.optimizers.SGD(learning_rate=0.001),
        metrics=["accuracy"],
    )
    return model


def worker():
    found = {}
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    rng = np.random.default_rng(0)
    x = rng.random((64 * WORKERS * 4, 28, 28), dtype="float32")
    y = rng.integers(0, 10, len(x))
    data = tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(64 * WORKERS)
    for name in NETWORKS:
        with strategy.scope():
            models = [network(keras, name), network(tf_keras, name)]
        for model in models:
            model.fit(data, steps_per_epoch=5, verbose=0)  # for tracing
        found[name] = [pair(models, data, STEPS, i % 2) for i in range(PAIRS)]
    if not json.loads(os.environ["TF_CONFIG"])["task"]["index"]:
        open("found.json", "w").write(json.dumps(found))
    os._exit(0)


def pair(models, data, steps, turned):
    # The wall and the processor time of a step of each.
    times = []
    for model in reversed(models) if turned else models:
        start = time.perf_counter(), time.process_time()
        model.fit(data, steps_per_epoch=steps, verbose=0)
        end = time.perf_counter(), time.process_time()
        times.append([(b - a) / steps * 1e3 for a, b in zip(start, end, strict=True)])
    return times[::-1] if turned else times


worker()
"""
CLOCKS = ("wall", "processor")
STEPS = 40


def measure(workers, plan):
    with folder(PROGRAM) as path:
        args = [str(workers), str(plan.rounds(11, 2)), str(STEPS)]
        for one in by_hand(path, workers, tf_config=True, args=args):
            one.wait()
        found = json.loads((path / "found.json").read_text())
    for network, pairs in found.items():
        for at, clock in enumerate(CLOCKS):
            ours, theirs = ([pair[library][at] for pair in pairs] for library in (0, 1))
            what = f"a step of Keras 3, {network} network, {workers} workers, {clock} time"
            yield Line(what, "ms", ours, "tf_keras", theirs)


CASES = [
    Case(
        f"keras-{workers}",
        f"a step of Keras 3 with the repairs on {workers} workers, against tf_keras",
        partial(measure, workers),
        slow=workers == 1,
    )
    for workers in (2, 1)
]
