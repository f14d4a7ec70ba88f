"""Provocations: a training that one of its workers slows down in a known way.

``python tests/slowness/slowed.py [TIMES] [CAUSE ...]`` runs each so many times, with each worker as
the slow one, and undisturbed runs as often; it prints what was expected and what was found.
"""

import sys
import tempfile
from collections import Counter
from pathlib import Path

from mwmagic import Cluster

PROGRAM = """
import gc, mmap, os, signal, subprocess, sys, time
import numpy as np
import tensorflow as tf
from mwmagic.worker import report, this_task

CAUSE = "base"
SLOW = "worker:1"
LOOP = "fit"
STEPS = 100
EACH = 5 if LOOP == "executions" else 1
PINNED = False
mine = SLOW in (str(this_task()), "all")
cpu = sorted(os.sched_getaffinity(0))[this_task().index % len(os.sched_getaffinity(0))]
if PINNED or CAUSE == "neighbour":
    os.sched_setaffinity(0, {cpu})
strategy = tf.distribute.MultiWorkerMirroredStrategy()
data = np.random.default_rng(0)
images = data.normal(size=(2048, 256)).astype("f4")
labels = data.integers(0, 10, 2048)


def burn(seconds):
    began = time.thread_time()
    while time.thread_time() - began < seconds:
        pass


def decode(batch):
    if mine and CAUSE == "input-waits":
        time.sleep(0.06 * strategy.num_replicas_in_sync)  # a batch is enough for a step of each
    if mine and CAUSE == "input-computes":
        burn(0.12)
    if mine and CAUSE == "garbage":
        for _ in range(3):
            gc.collect()
    if mine and CAUSE == "paging":  # as if a limit had pushed these pages out
        pages.madvise(mmap.MADV_DONTNEED)
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        sum(pages[:: mmap.PAGESIZE])
    return batch


def decoded(batch, label):
    image = tf.numpy_function(decode, [batch], tf.float32)
    return tf.ensure_shape(image, [None, 256]), label


def backward(gradient):
    if CAUSE == "code-waits":
        time.sleep(0.2)
    else:
        burn(0.2)
    return gradient


@tf.custom_gradient
def slow_backward(x):
    def grad(upstream):
        return tf.ensure_shape(tf.numpy_function(backward, [upstream], tf.float32), x.shape)

    return tf.identity(x), grad


batch = 8 if CAUSE == "tiny-steps" else 512
if CAUSE == "uneven" and mine:
    batch = 4096
if CAUSE == "garbage":
    heap = [[k] for k in range(300_000)]
if CAUSE == "paging" and mine:
    file = open(f"pages-{os.getpid()}", "w+b")
    os.unlink(file.name)
    file.write(os.urandom(1600 * mmap.PAGESIZE))
    os.fsync(file.fileno())
    pages = mmap.mmap(file.fileno(), 0)
    pages.madvise(mmap.MADV_RANDOM)
dataset = tf.data.Dataset.from_tensor_slices((images, labels)).repeat().batch(batch)
dataset = dataset.map(decoded).prefetch(2)
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
dataset = dataset.with_options(options)


class Work(tf.keras.layers.Layer):
    def build(self, shape):
        self.w = self.add_weight(shape=(256, 256), name="w")

    def call(self, x):
        if mine and CAUSE in ("backward", "code-waits"):
            x = slow_backward(x)
        found = x @ self.w
        if mine and CAUSE == "more-work":
            for k in range(60):
                found += 1e-9 * (tf.stop_gradient(x) @ (tf.stop_gradient(self.w) * float(k)))
        return tf.nn.relu(found)


def besides(number):
    if mine and CAUSE == "callbacks":
        time.sleep(0.03 * EACH)
    if mine and CAUSE == "saves":
        model.save_weights(f"{this_task().index}.weights.h5")
    if mine and CAUSE == "tracing":
        for _ in range(EACH):
            tf.function(lambda x: tf.linalg.trace(x @ x) * number)(tf.ones((8, 8)))


class Besides(tf.keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        besides(batch)


AGAINST = {
    "stopped": (
        "import os, signal, sys, time\\npid = int(sys.argv[1])\\nwhile os.getppid() == pid:\\n"
        "    for number in (signal.SIGSTOP, signal.SIGCONT):\\n"
        "        os.kill(pid, number); time.sleep(0.1)"
    ),
    "neighbour": "import os, sys\\nwhile os.getppid() == int(sys.argv[1]): pass",
}
if mine and CAUSE in AGAINST:
    for _ in range(3 if CAUSE == "neighbour" else 1):
        subprocess.Popen([sys.executable, "-c", AGAINST[CAUSE], str(os.getpid())])
if mine and CAUSE == "throttled":
    with open(f"{os.environ['QUOTA']}/cgroup.procs", "w") as group:
        group.write(str(os.getpid()))
with strategy.scope():
    depth = 2 if CAUSE in ("backward", "code-waits") else 8
    layers = [tf.keras.layers.Input((256,)), *[Work() for _ in range(depth)]]
    model = tf.keras.Sequential([*layers, tf.keras.layers.Dense(10)])
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss, steps_per_execution=EACH)
if LOOP == "loop":
    with strategy.scope():
        optimizer = tf.keras.optimizers.SGD()
        optimizer.build(model.trainable_variables)
    per_sample = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")

    @tf.function
    def step(batch):
        def replica(batch):
            x, y = batch
            with tf.GradientTape() as tape:
                value = tf.reduce_mean(per_sample(y, model(x, training=True)))
            gradients = tape.gradient(value, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables))
            return value

        return strategy.reduce("MEAN", strategy.run(replica, args=(batch,)), axis=None)

    batches = iter(strategy.experimental_distribute_dataset(dataset))
    for number in range(STEPS):
        value = step(next(batches))
        besides(number)
        report(step=number, loss=value)
    del batches  # see "A worker that has finished does not end" in docs/failures.md
else:
    model.fit(dataset, epochs=1, steps_per_epoch=STEPS, callbacks=[Besides()], verbose=2)
"""

ALL = {"tiny-steps": "collective"}
"""What slows down all tasks alike, with the cause that is to be found."""

CAUSES = (
    "input-waits",
    "input-computes",
    "callbacks",
    "code-waits",
    "garbage",
    "tracing",
    "more-work",
    "neighbour",
    "stopped",
    "paging",
)


def expected(provoked, on, loop):
    """Return the cause and the task that are to be named."""
    if provoked == "callbacks" and loop == "loop":  # which has none
        return "code-waits", on
    return ALL.get(provoked, provoked), on


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
        right = "right" if expected(cause, slow, "fit") == (found, task) else "WRONG"
        print(f"{done:28} {found or 'nothing':16} {task:10} {count:4} {right}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 1, sys.argv[2:] or CAUSES)
