"""How fast Keras 3 with the repairs trains on two workers, compared with tf_keras.

    python benchmarks/keras_speed.py [--workers 2] [--pairs 11] [--steps 40]

Both libraries train the same networks in the same worker processes, one epoch
each in turn, and each equally often before and after the other, so that any
other load on the machine affects both. The networks are a small dense one, the
convolutional one of the multi-worker tutorial, and the latter with
BatchNormalization. For each it prints the median step of both libraries in wall
and processor time, and the median and the quartiles of the ratio within a pair.
Processor time depends less on other load, but does not include waiting.
`--workers 1` shows the difference between the libraries themselves.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time

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


def worker(options):
    import keras
    import numpy as np
    import tensorflow as tf
    import tf_keras

    import mwmagic.keras  # noqa: F401 - for its effect

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    rng = np.random.default_rng(0)
    x = rng.random((64 * options.workers * 4, 28, 28), dtype="float32")
    y = rng.integers(0, 10, len(x))
    data = tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(64 * options.workers)
    for name in NETWORKS:
        with strategy.scope():
            models = [network(keras, name), network(tf_keras, name)]
        for model in models:
            model.fit(data, steps_per_epoch=5, verbose=0)  # for tracing
        report(name, [pair(models, data, options.steps, i % 2) for i in range(options.pairs)])
    sys.stdout.flush()
    os._exit(0)


def pair(models, data, steps, turned):
    """Train both models, and return the wall and processor time of a step of each."""
    times = []
    for model in reversed(models) if turned else models:
        start = time.perf_counter(), time.process_time()
        model.fit(data, steps_per_epoch=steps, verbose=0)
        end = time.perf_counter(), time.process_time()
        times.append([(b - a) / steps * 1e3 for a, b in zip(start, end, strict=True)])
    return times[::-1] if turned else times


def report(name, pairs):
    if json.loads(os.environ["TF_CONFIG"])["task"]["index"]:
        return
    for i, clock in enumerate(("wall", "processor")):
        new, old = ([each[library][i] for each in pairs] for library in (0, 1))
        ratios = [a / b for a, b in zip(new, old, strict=True)]
        low, _, high = statistics.quantiles(ratios, n=4)
        print(
            f"{name:14} {clock:10} keras {statistics.median(new):6.2f} ms/step   "
            f"tf_keras {statistics.median(old):6.2f} ms/step   "
            f"ratio {statistics.median(ratios):.2f} ({low:.2f} to {high:.2f})",
            flush=True,
        )


def launch(options):
    held = [socket.socket() for _ in range(options.workers)]
    for each in held:
        each.bind(("localhost", 0))
    addresses = [f"localhost:{each.getsockname()[1]}" for each in held]
    for each in held:
        each.close()
    workers = []
    for index in range(options.workers):
        task = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
        env = {
            **os.environ,
            "TF_CONFIG": json.dumps(task),
            "TF_CPP_MIN_LOG_LEVEL": "2",
            "TF_NUM_INTRAOP_THREADS": "1",
            "no_proxy": "localhost,127.0.0.1",
        }
        quiet = subprocess.DEVNULL if index else None
        workers.append(
            subprocess.Popen([sys.executable, *sys.argv], env=env, stdout=quiet, stderr=quiet)
        )
    sys.exit(max(worker.wait() for worker in workers))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=11)
    parser.add_argument("--steps", type=int, default=40)
    chosen = parser.parse_args()
    if "TF_CONFIG" in os.environ:
        worker(chosen)
    else:
        launch(chosen)
