"""How dividing the processors among the tasks of a machine affects training.

``python benchmarks/threads.py`` trains with TensorFlow's own number of threads
(``--threads 0``: as many as there are processors, in each process) and with the
divided one (``--threads auto``), in turn, and prints the times and their ratio.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import tempfile
from pathlib import Path

from mwmagic import Cluster

MAIN = """
import time
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
rank, size = strategy.cluster_resolver.task_id, strategy.num_replicas_in_sync
layers = tf.keras.layers
with strategy.scope():
    model = tf.keras.Sequential([
        layers.Input((28, 28, 1)), layers.Conv2D(32, 3, activation="relu"),
        layers.Conv2D(32, 3, activation="relu"), layers.MaxPooling2D(), layers.Flatten(),
        layers.Dense(128, activation="relu"), layers.Dense(10)])
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss=loss)
x, y = tf.random.normal((1024, 28, 28, 1)), tf.zeros((1024,), tf.int32)
data = tf.data.Dataset.from_tensor_slices((x, y)).batch(64 * size)
model.fit(data, epochs=1, verbose=0)
start = time.perf_counter()
model.fit(data, epochs=3, verbose=0)
print("seconds", time.perf_counter() - start)
"""


def seconds(cluster: Cluster, folder: Path) -> float:
    run = cluster.run("main.py", cwd=folder).wait()
    texts = [run.logs(task).decode() for task in cluster.tasks]
    return max(float(re.search(r"^seconds (.*)", text, re.MULTILINE)[1]) for text in texts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    times: dict[str, list[float]] = {"0": [], "auto": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "main.py").write_text(MAIN)
        with (
            Cluster(given.workers, name="all", directory=folder, threads=0) as all_of_them,
            Cluster(given.workers, name="divided", directory=folder) as divided,
        ):
            for _ in range(given.rounds):
                times["0"].append(seconds(all_of_them, folder))
                times["auto"].append(seconds(divided, folder))
    processors = len(os.sched_getaffinity(0))
    print(f"{given.workers} workers on {processors} processors, {given.rounds} rounds")
    for name, values in times.items():
        print(
            f"--threads {name:<5} median {statistics.median(values):.2f} s, min {min(values):.2f} s"
        )
    pairs = zip(times["0"], times["auto"], strict=True)
    ratio = statistics.median(own / share for own, share in pairs)
    print(f"divided is {ratio:.2f} times as fast (the median of the rounds' ratios)")


if __name__ == "__main__":
    main()
