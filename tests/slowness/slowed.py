"""Provocations: a training that one of its workers slows down in a known way.

`confusion` runs them, and counts what is found.
"""

import os
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

PROGRAM = """
import gc, logging, mmap, os, signal, subprocess, sys, threading, time, zlib
import numpy as np
import tensorflow as tf
from mwmagic.worker import report, this_task

CAUSE = "base"
SLOW = "worker:1"
LOOP = "fit"
STEPS = 100
EACH = 5 if LOOP == "executions" else 1
PINNED = False
LIMITED = {"throttled": "CPU_GROUP", "memory-limit": "MEMORY_GROUP"}
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
    if mine and CAUSE == "memory-limit":
        sum(pages[at * mmap.PAGESIZE] for at in data.integers(0, PAGES, 8000))
    if mine and CAUSE == "lock":
        with lock:
            pass
    if mine and CAUSE == "augments":
        for _ in range(400):
            batch = np.sort(batch, axis=1) + batch
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


def filtered(values):
    burn(0.02)
    return values


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
if CAUSE in LIMITED and mine:
    with open(f"{os.environ[LIMITED[CAUSE]]}/cgroup.procs", "w") as group:
        group.write(str(os.getpid()))
if CAUSE in ("paging", "memory-limit") and mine:
    PAGES = 1600 if CAUSE == "paging" else 240_000
    file = open(f"pages-{os.getpid()}", "w+b")
    os.unlink(file.name)
    block = os.urandom(1600 * mmap.PAGESIZE)
    for _ in range(0, PAGES, 1600):
        file.write(block)
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
        if mine and CAUSE == "python-layer":
            noise = tf.numpy_function(filtered, [tf.stop_gradient(x)], x.dtype)
            x += 0 * tf.ensure_shape(noise, x.shape)
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
    if mine and CAUSE == "files":
        with open(f"state-{this_task().index}", "wb") as file:
            file.write(os.urandom(10**7))
            os.fsync(file.fileno())
    if mine and CAUSE == "logs":
        for k in range(4000 * EACH):
            log.info("sample %d of batch %d has %r", k, number, values[k % 100])
    if mine and CAUSE == "objects":
        kept.extend({"sample": k, "label": [k]} for k in range(30_000 * EACH))
    if mine and CAUSE == "evaluates":
        for _ in range(EACH):
            model(images[:1024], training=False)


def hold():
    while True:
        with lock:
            time.sleep(0.1)


def compress():
    while True:
        zlib.compress(images.tobytes(), 9)


lock, kept, values = threading.Lock(), [], images[:100, :5].tolist()
log = logging.getLogger("samples")
if CAUSE == "logs" and mine:
    log.addHandler(logging.FileHandler("samples.log"))
    log.setLevel(logging.INFO)
    log.propagate = False
BESIDE = {"lock": [hold], "compresses": [compress] * 2}
for one in BESIDE.get(CAUSE, ()) if mine else ():
    threading.Thread(target=one, daemon=True).start()
if mine and CAUSE == "traces-lines":
    sys.settrace(lambda *_: sys.gettrace())


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

LIMITS = {"throttled": "throttled", "memory-limit": "paging"}
"""What needs control groups with limits, with the cause that is to be found."""

UNSEEN = {
    "lock": {"input-waits"},
    "augments": {"input-computes", "more-work"},
    "python-layer": {"input-computes", "more-work"},
    "files": {"callbacks", "code-waits", "more-work"},
    "logs": {"callbacks", "code-waits", "more-work"},
    "objects": {"callbacks", "garbage", "more-work"},
    "evaluates": {"callbacks", "more-work"},
    "compresses": {"neighbour", "more-work"},
    "traces-lines": {"more-work"},
    "uneven": {"more-work"},
}
"""What the rules were not made with, each with the causes that are true of it."""


def accepted(provoked, loop):
    """Return the causes that may be named."""
    if provoked in UNSEEN:
        return {*UNSEEN[provoked], "unclear"}
    if provoked == "callbacks" and loop == "loop":  # which has none
        return {"code-waits"}
    return {(ALL | LIMITS).get(provoked, provoked)}


CPU_RATIO = 0.2
"""How many CPUs the group may use whose quota is used up."""

MEMORY_BYTES = 600 * 2**20
"""How much memory the group may use that is short of it: less than a file that is mapped. Less than
half of it is enough for a training, but not for the end of a process that was forked."""


@contextmanager
def limited():
    """Yield variables that name control groups with limits; none if none can be made here."""
    quota = {"cpu.cfs_period_us": 100_000, "cpu.cfs_quota_us": int(CPU_RATIO * 100_000)}
    memory = {"memory.limit_in_bytes": MEMORY_BYTES}
    made = {}
    with ExitStack() as stack:
        with suppress(OSError):
            made["CPU_GROUP"] = made_group(stack, "/sys/fs/cgroup/cpu", quota)
            made["MEMORY_GROUP"] = made_group(stack, own_memory_group(), memory)
        yield made if len(made) == len(LIMITS) else {}


def made_group(stack, top, limits):
    """Make a control group that a stack removes, as version 1 has them; return its folder."""
    group = Path(top, f"mwmagic-slowed-{os.getpid()}")
    group.mkdir()
    stack.callback(group.rmdir)
    for file, limit in limits.items():
        (group / file).write_text(str(limit))
    return str(group)


def own_memory_group():
    """Return this process's group for memory: one below it may use no more than it."""
    lines = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    path = next((path for _, kinds, path in lines if kinds == "memory"), "")
    return f"/sys/fs/cgroup/memory{path}"
