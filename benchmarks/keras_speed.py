"""How fast Keras 3 trains under two workers with the repair, beside tf_keras.

    python benchmarks/keras_speed.py [--workers 2] [--pairs 5] [--steps 60]

Both libraries train the same convolutional network of the multi-worker
tutorial in the same worker processes, one epoch each in turn, so whatever else
the machine does falls on both. It prints, for each model, the median step time
of either library and of the ratio within each pair.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time


def network(keras, name):
    layers = keras.layers
    if name == "dense":
        inner = [layers.Flatten(), layers.Dense(64, activation="relu")]
    else:
        inner = [
            layers.Reshape((28, 28, 1)),
            layers.Conv2D(32, 3, activation="relu"),
            layers.BatchNormalization(),
            layers.Flatten(),
            layers.Dense(128, activation="relu"),
        ]
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
    for name in ("dense", "convolutional"):
        with strategy.scope():
            models = {"keras": network(keras, name), "tf_keras": network(tf_keras, name)}
        times = {library: [] for library in models}
        for pair in range(options.pairs + 1):
            for library, model in models.items():
                steps = options.steps if pair else 5
                start = time.perf_counter()
                model.fit(data, steps_per_epoch=steps, epochs=1, verbose=0)
                if pair:  # the first is for tracing
                    times[library].append((time.perf_counter() - start) / steps * 1e3)
        report(name, times)
    sys.stdout.flush()
    os._exit(0)


def report(name, times):
    if json.loads(os.environ["TF_CONFIG"])["task"]["index"]:
        return
    ratios = [new / old for new, old in zip(times["keras"], times["tf_keras"], strict=True)]
    medians = {library: statistics.median(ms) for library, ms in times.items()}
    print(
        f"{name:14} keras {medians['keras']:6.2f} ms/step   tf_keras {medians['tf_keras']:6.2f} "
        f"ms/step   ratio {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
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
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=60)
    chosen = parser.parse_args()
    if "TF_CONFIG" in os.environ:
        worker(chosen)
    else:
        launch(chosen)
