"""The memory of the warm process, which stays while nothing happens."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import contextmanager

import psutil

from .case import Case, Line
from .clusters import cluster, folder

PLAIN = "import tensorflow\nprint('up', flush=True)\nimport time\ntime.sleep(600)\n"
PERIOD_SECONDS = 4.0


def resident(pid):
    return psutil.Process(pid).memory_info().rss / 2**20


@contextmanager
def plain():
    """Yield the id of a plain process that has imported TensorFlow."""
    words = [sys.executable, "-c", PLAIN]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as one:
        one.stdout.readline()
        yield one.pid
        one.kill()


def warm(plan):
    ours, theirs = [], []
    for _ in range(plan.rounds(3, 1)):
        with folder() as path, cluster(2, path, warm=True) as one, plain() as other:
            time.sleep(PERIOD_SECONDS)  # it gives memory back once nothing is asked of it
            ours.append(resident(one.machines[0].warm.pid))
            theirs.append(resident(other))
    against = "plain import of TensorFlow"
    yield Line("memory of the warm process", "MB", ours, against, theirs, note="aim 250 MB")


CASES = [Case("rest-warm", "memory of the warm process, against a plain import", warm)]
