"""What a notebook waits for before its first launch: the extension, and a cluster."""

from __future__ import annotations

import sys
import time

from .case import Case, Line
from .clusters import folder
from .kernels import kernel

LOAD = "%load_ext mwmagic"
DECLARE = "%mw_cluster 2"
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
    what, note = "%mw_cluster 2, in a kernel that has used no magic yet", "aim 0.15 s"
    yield Line(what, "s", declare, "a process that imports IPython", plain, note=note)


CASES = [Case("declare", "%load_ext and %mw_cluster 2, against a kernel's own start", measure)]
