"""What reporting costs: a call of `report()`, and a step of `fit` that reports.

A worker reports on a line, which this process reads. A call is compared with `print` of the same
numbers into a file, unbuffered as in a worker; a step of a small dense model with the same step
without reports, in turn.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading

from mwmagic.worker import bootstrap

from .case import Case, Line
from .clusters import folder

CALLS = """
import json, time
from mwmagic.worker import report
N = 50_000
def spent(call):
    began = time.perf_counter()
    for step in range(N):
        call(step)
    return 1e6 * (time.perf_counter() - began) / N
file = open("printed.txt", "w")
def printed(step):
    print(f"step {step} loss: {1 / (step + 1)} accuracy: 0.5", file=file, flush=True)
found = []
for _ in range(ROUNDS):
    plain = spent(printed)
    found.append((spent(lambda step: report(step=step, loss=1 / (step + 1), accuracy=0.5)), plain))
"""
STEPS = """
import json, time
import numpy as np
import keras
N = 1000
x = np.random.rand(32 * N, 64).astype("float32")
y = np.random.rand(32 * N, 1).astype("float32")
model = keras.Sequential([keras.layers.Dense(128, activation="relu") for _ in range(3)]
                         + [keras.layers.Dense(1)])
model.compile("adam", "mse", metrics=["mae"])
def spent():
    began = time.perf_counter()
    model.fit(x, y, batch_size=32, verbose=0, shuffle=False)
    return 1e6 * (time.perf_counter() - began) / N
import mwmagic.worker.fit as fit
notify = fit._notify
def nothing(*_):
    pass
spent()
found = []
for _ in range(ROUNDS):
    fit._notify = nothing
    plain = spent()
    fit._notify = notify
    found.append((spent(), plain))
"""
ANSWER = 'open("found.json", "w").write(json.dumps(found))\n'
QUIET = {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"}


def read(line):
    while line.recv(1 << 17):
        pass


def worker(program, rounds):
    """Run a program as a worker whose reports are read; return the pairs that it found."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with folder(f"ROUNDS = {rounds}\n{program}{ANSWER}") as path, ours:
        with theirs:
            process = subprocess.Popen(
                [sys.executable, bootstrap.__file__, "main.py"],
                env={**os.environ, **QUIET, "MWMAGIC_LINE": str(theirs.fileno())},
                pass_fds=[theirs.fileno()],
                cwd=path,
                stderr=subprocess.DEVNULL,
            )
        reader = threading.Thread(target=read, args=(ours,))
        reader.start()
        process.wait()
        reader.join()
        return zip(*json.loads((path / "found.json").read_text()), strict=True)


def calls(plan):
    ours, theirs = map(list, worker(CALLS, plan.rounds(7, 3)))
    yield Line("a call of report()", "µs", ours, "print into a file", theirs)


def steps(plan):
    ours, theirs = map(list, worker(STEPS, plan.rounds(9, 3)))
    yield Line("a step of fit that reports", "µs", ours, "without reports", theirs)


CASES = [
    Case("report-call", "a call of report(), against print", calls),
    Case("report-step", "a step of fit that reports, against one that does not", steps),
]
