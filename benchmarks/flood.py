"""What it costs a worker to print a lot while no one reads it.

A process prints line by line, or 1,000 lines at once, in turn into a file, and as a worker whose
log mwmagic keeps. Both print unbuffered, as workers do.
"""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path

from .case import Case, Line
from .clusters import cluster, folder
from .ratio import alternated

LINE = "step 5000 of a training with loss=0.4321 and accuracy=0.98765\n"
SIZES = {1: 20 << 20, 1000: 200 << 20}
"""The number of lines printed at once, and roughly the bytes in total."""

MAIN = f"""
import sys, time
from pathlib import Path
text, count = {LINE!r} * int(sys.argv[1]), int(sys.argv[2])
start = time.perf_counter()
for _ in range(count):
    sys.stdout.write(text)
Path("seconds").write_text(str(time.perf_counter() - start))
"""
PLAIN = [sys.executable, "-u", "main.py"]


def into_file(path, args):
    log = path / "file.log"
    with log.open("wb") as file:
        subprocess.run([*PLAIN, *args], cwd=path, stdout=file, check=True)
    return log


def into_log(path, args):
    with cluster(1, path) as one:
        run = one.run("main.py", args=args, cwd=path).wait()
        return Path(run.status().tasks["worker:0"].log)


WAYS = {"file": into_file, "mwmagic": into_log}


def seconds(way, path, lines):
    """Return how long a process takes to print everything, and check that it arrived."""
    count = SIZES[lines] // (lines * len(LINE))
    log = WAYS[way](path, [str(lines), str(count)])
    size = log.stat().st_size
    if size != count * lines * len(LINE):
        raise AssertionError(f"{log} has {size} bytes")
    log.unlink()
    return float((path / "seconds").read_text())


def measure(lines, plan):
    with folder(MAIN) as path:
        calls = {way: partial(seconds, way, path, lines) for way in WAYS}
        found = alternated(plan.rounds(7, 2), **calls)
    what = f"printing {SIZES[lines] >> 20} MB, {lines} lines at once"
    yield Line(what, "s", found["mwmagic"], "into a file", found["file"])


CASES = [
    Case(
        f"flood-{lines}",
        f"a process that prints {lines} lines at once, against printing into a file",
        partial(measure, lines),
    )
    for lines in SIZES
]
