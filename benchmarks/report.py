"""What reporting costs: a call of `report()`, and a step of `fit` that reports.

::

    python benchmarks/report.py [--steps N] [--rounds N] [--no-keras]

It runs a worker that reports on a line, which this process reads. A call is compared with
`print` of the same numbers into a file, unbuffered as in a worker. A step of a small dense
model is compared with the same step without reports, in turn, so that both run under the
same conditions.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from mwmagic.worker import bootstrap

CALLS = """
import time
from mwmagic.worker import report
N = 50_000
def spent(call):
    began = time.perf_counter()
    for step in range(N):
        call(step)
    return (time.perf_counter() - began) / N
file = open("printed.txt", "w")
def printed(step):
    print(f"step {step} loss: {1 / (step + 1)} accuracy: 0.5", file=file, flush=True)
for _ in range(ROUNDS):
    a = spent(printed)
    b = spent(lambda step: report(step=step, loss=1 / (step + 1), accuracy=0.5))
    print(f"print {1e6 * a:6.2f} us   report() {1e6 * b:6.2f} us   ratio {b / a:.2f}")
"""

STEPS = """
import statistics, time
import numpy as np
import keras
x = np.random.rand(32 * STEPS, 64).astype("float32")
y = np.random.rand(32 * STEPS, 1).astype("float32")
model = keras.Sequential([keras.layers.Dense(128, activation="relu") for _ in range(3)]
                         + [keras.layers.Dense(1)])
model.compile("adam", "mse", metrics=["mae"])
def seconds():
    began = time.perf_counter()
    model.fit(x, y, batch_size=32, verbose=0, shuffle=False)
    return (time.perf_counter() - began) / STEPS
import mwmagic.worker.fit as fit
notify = fit._notify
def nothing(*_):
    pass
seconds()
found = []
for _ in range(ROUNDS):
    fit._notify = nothing
    a = seconds()
    fit._notify = notify
    b = seconds()
    found.append(b / a)
    print(f"step without {1e6 * a:7.1f} us   with reports {1e6 * b:7.1f} us   ratio {b / a:.3f}")
print(f"median ratio {statistics.median(found):.3f}")
"""


def _worker(code: str) -> None:
    """Run code as a worker whose reports are read, and show its output."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    packets = [0]

    def read() -> None:
        while ours.recv(1 << 17):
            packets[0] += 1

    with tempfile.TemporaryDirectory() as folder, ours:
        script = Path(folder, "main.py")
        script.write_text(code)
        quiet = {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"}
        with theirs:
            process = subprocess.Popen(
                [sys.executable, bootstrap.__file__, str(script)],
                env={**os.environ, **quiet, "MWMAGIC_LINE": str(theirs.fileno())},
                pass_fds=[theirs.fileno()],
                cwd=folder,
                stderr=subprocess.DEVNULL,
            )
        reader = threading.Thread(target=read)
        reader.start()
        process.wait()
        reader.join()
    print(f"{packets[0]} packets")


def main() -> None:
    """Measure both."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--no-keras", action="store_true")
    options = parser.parse_args()
    head = f"STEPS, ROUNDS = {options.steps}, {options.rounds}\n"
    _worker(head + CALLS)
    if not options.no_keras:
        _worker(head + STEPS)


if __name__ == "__main__":
    main()
