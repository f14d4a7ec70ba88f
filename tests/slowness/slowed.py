"""Provocations: a training that one of its workers slows down in a known way.

``python tests/slowness/slowed.py [TIMES] [CAUSE ...]`` runs each so many times, with each worker as
the slow one, and undisturbed runs as often; it prints what was expected and what was found.
"""

import sys
import tempfile
from collections import Counter
from pathlib import Path

from mwmagic import Cluster

PROGRAM = '''
import os, signal, subprocess, sys, time
import numpy as np
import tensorflow as tf
from mwmagic.worker import this_task

CAUSE = "base"
SLOW = "worker:1"
mine = SLOW in (str(this_task()), "all")
strategy = tf.distribute.MultiWorkerMirroredStrategy()
data = np.random.default_rng(0)
images = data.normal(size=(2048, 256)).astype("f4")
labels = data.integers(0, 10, 2048)


def decode(batch):
    if mine and CAUSE == "input-waits":
        time.sleep(0.12)
    if mine and CAUSE == "input-computes":
        began = time.thread_time()
        while time.thread_time() - began < 0.12:
            pass
    return batch


def decoded(batch, label):
    image = tf.numpy_function(decode, [batch], tf.float32)
    return tf.ensure_shape(image, [None, 256]), label


dataset = tf.data.Dataset.from_tensor_slices((images, labels)).repeat().batch(512)
dataset = dataset.map(decoded).prefetch(2)
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
dataset = dataset.with_options(options)


class Work(tf.keras.layers.Layer):
    def build(self, shape):
        self.w = self.add_weight(shape=(256, 256), name="w")

    def call(self, x):
        found = x @ self.w
        if mine and CAUSE == "more-work":
            for k in range(60):
                found += 1e-9 * (tf.stop_gradient(x) @ (tf.stop_gradient(self.w) * float(k)))
        return tf.nn.relu(found)


class Save(tf.keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if mine and CAUSE == "callbacks":
            time.sleep(0.03)


STOP = """
import os, signal, sys, time
pid = int(sys.argv[1])
while os.getppid() == pid:
    os.kill(pid, signal.SIGSTOP); time.sleep(0.1); os.kill(pid, signal.SIGCONT); time.sleep(0.1)
"""
if mine and CAUSE == "stopped":
    subprocess.Popen([sys.executable, "-c", STOP, str(os.getpid())])
with strategy.scope():
    layers = [tf.keras.layers.Input((256,)), *[Work() for _ in range(8)], tf.keras.layers.Dense(10)]
    model = tf.keras.Sequential(layers)
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss)
model.fit(dataset, epochs=1, steps_per_epoch=200, callbacks=[Save()], verbose=2)
'''

CAUSES = ("input-waits", "input-computes", "callbacks", "more-work", "stopped")


def verdict(cluster, cause, slow, folder):
    """Return the cause and the task that a run's record names, or two empty texts."""
    run = cluster.run("main.py", source=PROGRAM, cwd=folder, params={"CAUSE": cause, "SLOW": slow})
    run.wait(timeout=300)
    found = run.status().slow
    return (found.cause.value, found.task or "all") if found else ("", "")


def main(times, causes):
    """Print how often each pair of what was done and what was found came up."""
    seen = Counter()
    folder = Path(tempfile.mkdtemp())
    with Cluster(2, directory=folder) as cluster:
        for _ in range(times):
            for cause in causes:
                for slow in ("worker:0", "worker:1"):
                    seen[(cause, slow, *verdict(cluster, cause, slow, folder))] += 1
                    seen[("", "", *verdict(cluster, "base", slow, folder))] += 1
    for (cause, slow, found, task), count in sorted(seen.items()):
        done = f"{cause} on {slow}" if cause else "undisturbed"
        right = "right" if (cause, slow) == (found, task) else "WRONG"
        print(f"{done:28} {found or 'nothing':16} {task:10} {count:4} {right}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 1, sys.argv[2:] or CAUSES)
