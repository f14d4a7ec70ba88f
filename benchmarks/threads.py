"""How dividing the processors among the tasks of a machine affects training.

TensorFlow's own number of threads (``--threads 0``: as many as there are processors, in each
process) is compared with the divided one (``--threads auto``), in turn.
"""

from __future__ import annotations

import re
from contextlib import ExitStack
from functools import partial

from .case import Case, Line
from .clusters import cluster, folder
from .ratio import alternated

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


def seconds(one, path):
    run = one.run("main.py", cwd=path).wait()
    texts = [run.logs(task).decode() for task in one.tasks]
    return max(float(re.search(r"^seconds (.*)", text, re.MULTILINE)[1]) for text in texts)


def measure(plan):
    calls = {}
    with ExitStack() as stack:
        for name, threads in (("divided", None), ("undivided", 0)):
            path = stack.enter_context(folder(MAIN))
            one = stack.enter_context(cluster(2, path, warm=True, threads=threads))
            calls[name] = partial(seconds, one, path)
        found = alternated(plan.rounds(5, 2), **calls)
    ours, theirs = found["divided"], found["undivided"]
    yield Line("training with divided threads", "s", ours, "all threads in each", theirs)


CASES = [Case("threads", "training with --threads auto, against --threads 0", measure, slow=True)]
