"""The round trip of ``1 + 1`` on all tasks of a live session, asked from Python."""

from __future__ import annotations

import json
import subprocess
import time
from contextlib import contextmanager
from functools import partial
from statistics import median

from . import environments
from .case import Case, Line, Skipped
from .clusters import cluster, folder
from .ratio import alternated

CELLS = 100
FIRST_CELLS = 10
"""Cells before those that are measured."""

AIMS = {"ipyparallel": 0.25, "monarch": 1.0}

SERVE = f"""
import json, sys, time
def serve(ask):
    for _ in range({FIRST_CELLS}):
        ask()
    print("ready", flush=True)
    for line in sys.stdin:
        times = []
        for _ in range(int(line)):
            began = time.perf_counter()
            ask()
            times.append(1e3 * (time.perf_counter() - began))
        print(json.dumps(times), flush=True)
"""
"""Asks as often as it is told, and prints the milliseconds."""

OTHERS = {
    "ipyparallel": """
import ipyparallel
with ipyparallel.Cluster(n=SIZE, log_level=40) as client:
    view = client[:]
    view.block = True
    serve(lambda: view.execute("1 + 1", silent=False).get())
""",
    "monarch": """
from monarch.actor import Actor, endpoint, this_host
class Answers(Actor):
    @endpoint
    def two(self):
        return 1 + 1
actors = this_host().spawn_procs(per_host={"tasks": SIZE}).spawn("answers", Answers)
serve(lambda: actors.two.call().get())
""",
}


@contextmanager
def other(name, size):
    """Yield a function that asks one of the others, in an environment of its own."""
    program = SERVE + OTHERS[name].replace("SIZE", str(size))
    words = [environments.python(name), "-c", program]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(words, text=True, **pipes) as process:
        until(process, "ready")

        def ask():
            process.stdin.write(f"{CELLS}\n")
            process.stdin.flush()
            return median(json.loads(until(process, "[")))

        try:
            yield ask
        finally:
            process.stdin.close()
            process.terminate()


def until(process, beginning):
    """Read until a line begins so; return it."""
    for line in process.stdout:
        if line.startswith(beginning):
            return line
    raise EOFError("it ended")


@contextmanager
def ours(size):
    """Yield a function that asks live interpreters."""
    with folder() as path, cluster(size, path) as one, one.live() as live:
        for _ in range(FIRST_CELLS):
            live.run("1 + 1")
        yield partial(milliseconds, lambda: live.run("1 + 1"))


def milliseconds(ask):
    times = []
    for _ in range(CELLS):
        began = time.perf_counter()
        ask()
        times.append(1e3 * (time.perf_counter() - began))
    return median(times)


def measure(size, plan):
    for name, aim in AIMS.items():
        what = f"a cell's round trip, {size} tasks"
        try:
            with ours(size) as own, other(name, size) as theirs:
                found = alternated(plan.rounds(7, 2), own=own, theirs=theirs)
            yield Line(what, "ms", found["own"], name, found["theirs"], aim)
        except Skipped as reason:
            yield Line(what, "ms", [], name, [], aim, str(reason))


CASES = [
    Case(
        f"live-{size}",
        f"a live cell's round trip on {size} tasks, against ipyparallel and Monarch",
        partial(measure, size),
    )
    for size in (2, 8)
]
