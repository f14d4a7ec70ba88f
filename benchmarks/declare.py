"""What a notebook waits for before its first launch: the extension, and a cluster."""

from __future__ import annotations

import subprocess
import sys
import time

from .case import Case, Line
from .clusters import cluster, folder
from .kernels import kernel
from .ratio import alternated

LOAD = "%load_ext mwmagic"
DECLARE = "%mw_cluster 2"
IMPORT = [sys.executable, "-c", "import tensorflow"]
PLAIN = "import subprocess, sys; done = subprocess.run([sys.executable, '-c', 'import IPython'])"


def one():
    """Return the seconds of a kernel's start, of both magics, and of what they compare with."""
    with folder() as path:
        began = time.monotonic()
        with kernel(sys.executable, path) as started:
            start = time.monotonic() - began
            found = [started.run(code).seconds for code in (LOAD, DECLARE, PLAIN)]
            started.run("%mw_stop --cluster")
    return start, *found


def measure(plan):
    rounds = [one() for _ in range(plan.rounds(9, 3))]
    start, load, declare, plain = map(list, zip(*rounds, strict=True))
    note = "aim 0.04 s"
    yield Line("%load_ext mwmagic", "s", load, "the kernel's own start", start, note=note)
    what, note = "%mw_cluster 2, in a kernel that has used no magic yet", "aim 0.25 s"
    yield Line(what, "s", declare, "a process that imports IPython", plain, note=note)


def ready():
    """Return the seconds until a new cluster's warm process is ready."""
    with folder() as path:
        began = time.monotonic()
        with cluster(2, path, warm=True) as one:
            while one.machines[0].warm.state == "importing":
                time.sleep(0.005)
            return time.monotonic() - began


def imported():
    began = time.monotonic()
    subprocess.run(IMPORT, check=True, capture_output=True)
    return time.monotonic() - began


def warm(plan):
    found = alternated(plan.rounds(5, 2), ours=ready, theirs=imported)
    what, against = "a new cluster's warm process is ready", "plain import of TensorFlow"
    yield Line(what, "s", found["ours"], against, found["theirs"])


CASES = [
    Case("declare", "%load_ext and %mw_cluster 2, against a kernel's own start", measure),
    Case("ready", "a new cluster's warm process is ready, against a plain import", warm, slow=True),
]
