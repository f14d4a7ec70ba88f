"""The cells of the notebooks that the browser tests run."""

from __future__ import annotations

TASK = """
import json, os, sys, time
config = json.loads(os.environ["TF_CONFIG"])
index, count = config["task"]["index"], len(config["cluster"]["worker"])
"""


def declare(workers=2, *options):
    return f"%load_ext mwmagic\n%mw_cluster {workers} --no-warm --grace 0.2 " + " ".join(options)


EVERY_POINT = """
from mwmagic.experiments import series
series.SPACING_SECONDS = 0.0
"""
"""Draws every point; else those are left out that the supervisor reads soon after another one,
which depends on how busy the machine is."""


def worker(code, *options):
    return " ".join(["%%mw_worker", *options]) + TASK + code


def counting(steps):
    """Return a loop that waits half-way for a file named `go`, as a slow training would."""
    return worker(
        f"""
for step in range(1, {steps} + 1):
    while step == {steps} // 2 + 1 and not os.path.exists("go"):
        time.sleep(0.05)
    print(f"step {{step}}/{steps} loss={{2 / (1 + step / 40):.4f}}", flush=True)
    time.sleep(0.01)
"""
    )


FAILING = worker(
    """
def train(rate):
    if index == 1:
        raise ValueError("the learning rate must be positive <svg onload='window.hacked = 1'>")
    time.sleep(600)

if index == 1:
    print("<img src=x onerror='window.hacked = 2'>")
    print("</script><script>window.hacked = 3</script>")
    print("step 1/2 <b>loss</b>=1.0 loss=0.5", flush=True)
train(-1)
"""
)

AGAIN = worker(
    """
import signal
from mwmagic.worker import report

first = os.environ["MWMAGIC_ATTEMPT"] == "1"
if index == 1:
    report(epoch=2, step=3 if first else 1, loss=0.5)
    if first:
        os.kill(os.getpid(), signal.SIGKILL)
while not os.path.exists("go"):
    time.sleep(0.05)
"""
)

UP = "up, for $1 or $2"
SLEEPING = worker(
    f"""
print({UP!r}, flush=True)
time.sleep(600)
"""
)

WAITING = worker(
    """
if index == 0:
    print("2026-11-01 10:00:00.000001: I tensorflow/core/agent.cc:1] Example stragglers:")
    print("/job:worker/replica:0/task:1", flush=True)
time.sleep(600)
"""
)

NOTICES = worker(
    """
for _ in range(11 * index):  # more than comes in one piece
    print("x" * 60_000, flush=True)
for line in range(40):
    print(f"2026-11-01 10:00:00.{line:06}: I tensorflow/core/util/port.cc:153] oneDNN is on.")
for line in range(200):
    print(f"line {line} of {index}" + " needle" * (line in (7, 150)), flush=True)
print("and more" * index, end="", flush=True)
time.sleep(600)
"""
)

UNEVEN = worker(
    """
for line in range(15_000 if index else 3):
    print("line", line)
"""
)

COLOURS = [*range(31, 38), *range(90, 98), "1;32", "38;5;21", "38;5;226", "38;2;1;2;3", "41", "2"]
COLOURED = worker(
    f"""
for colour in {COLOURS}:
    print(f"\\x1b[{{colour}}mcolour {{colour}}\\x1b[0m and \\x1b[4mmore\\x1b[0m", flush=True)
print("step 1/2 loss=0.5", flush=True)
print(f"2026-11-01 10:00:00.000001: I tensorflow/core/util/port.cc:153] oneDNN is on.", flush=True)
if index:
    while not os.path.exists("printed"):  # the failure ends the other worker
        time.sleep(0.01)
    compile("def f(:\\n  pass", "broken.py", "exec")
open("printed", "w").close()
time.sleep(600)
"""
)
BROKEN = "%%mw_worker\nprint('up')\ndef f(:\n    pass\n"

LONG = "val_" + "categorical_" * 6 + "accuracy"
METRICS = worker(
    f"""
for step in range(1, 21):
    once = " once=0.5 {LONG}=0.5" if step == 20 else ""
    print(f"step {{step}}/20 loss={{1 / step:.4f}} acc={{step / 100:.2f}}{{once}}", flush=True)
    time.sleep(0.12)
time.sleep(600)
"""
)

ALONE = worker(
    """
for step in range(1, 8):
    loss, acc = 0.5 if step == 4 else float("nan"), 0.5 if step in (3, 7) else 0.0
    print(f"step {step}/7 loss={loss} acc={acc}", flush=True)
time.sleep(600)
"""
)

EPOCHS = worker(
    """
for epoch in (1, 2, 3):
    for step in range(1, 11):
        loss = 10.0**-epoch * (1 + step / 10 + index / 10)
        print(f"epoch {epoch} step {step}/10 loss={loss:.6f} acc={step / 10}", flush=True)
time.sleep(600)
"""
)

DIVERGED = worker(
    """
for epoch in range(1, 13):
    for step in (1, 2):
        loss, acc = 4e10 * (1 + epoch / 200), 1.2 * 1.3**epoch
        print(f"epoch {epoch} step {step}/2 loss={loss} acc={acc}", flush=True)
time.sleep(600)
"""
)

FIGURES = worker(
    """
import matplotlib
matplotlib.use("agg")
import matplotlib.pyplot as plt

for number in range(2):
    plt.figure(figsize=(4, 2.5))
    plt.plot([1, 2, 4 + number * (1 + index)])
    plt.title(f"what the program shows, {number}")
    plt.show()
while not os.path.exists("go"):
    time.sleep(0.05)
"""
)

NAMES = [
    f"{kind}{name}"
    for name in ("binary_accuracy", "auc", "recall", "precision", "loss")
    for kind in ("", "val_")
]
WIDE = worker(
    f"""
values = " ".join(f"{{name}}=0.{{number}}234" for number, name in enumerate({NAMES}))
print(f"step 123456/200000 {{values}}", flush=True)
time.sleep(600)
"""
)

MANY = worker(
    """
for step in range(1, 101):
    loss = 3 / (1 + step / (20 + index))
    print(f"step {step}/100 loss={loss:.4f} acc={step / 120:.3f}", flush=True)
    if index == count // 2 and step == 60:
        raise RuntimeError("out of luck")
    time.sleep(0.02)
time.sleep(600)
"""
)

TRAINING = """%%mw_worker
import numpy as np
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
rng = np.random.default_rng(0)
x = rng.normal(size=(4096, 32)).astype("float32")
y = (x[:, :4].sum(1) > 0).astype("int64")
data = tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(64)
with strategy.scope():
    model = tf.keras.Sequential(
        [tf.keras.layers.Input((32,)), tf.keras.layers.Dense(64, "relu"), tf.keras.layers.Dense(2)]
    )
    model.compile(
        optimizer=tf.keras.optimizers.SGD(0.05),
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
model.fit(data, epochs=3, steps_per_epoch=150)
"""
