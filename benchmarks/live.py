"""The round trip of ``1 + 1`` on all tasks of a live session, and what moving an array costs.

A cell is asked from Python, and "displayed" as the magic in a kernel, with its output. Others are
asked from Python.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from functools import partial
from statistics import median

import numpy as np

from mwmagic.client.live.transfer import MEMORY

from . import environments
from .case import Case, Line, Skipped
from .clusters import cluster, folder
from .kernels import kernel
from .ratio import alternated

CELLS = 100
FIRST_CELLS = 10
"""Cells before those that are measured."""

AIMS = {"ipyparallel": 0.25, "monarch": 1.0}
DISPLAYED_AIM = 2.0
"""Of Monarch's round trip that nothing displays."""

ARRAY_MB = 256

SERVE = f"""
import json, sys, time
def rounds(count, ask):
    times = []
    for _ in range(count):
        began = time.perf_counter()
        ask()
        times.append(1e3 * (time.perf_counter() - began))
    return times
def serve(ask):
    rounds({FIRST_CELLS}, ask)
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(rounds(int(line), ask)), flush=True)
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


@contextmanager
def displayed(size):
    """Yield a function that runs live cells in a kernel, with their output."""
    with folder() as path, kernel(sys.executable, path) as opened:
        opened.run(f"%load_ext mwmagic\n%mw_cluster {size} --no-warm")
        opened.run("%%mw_live\n1 + 1")
        asked = 'get_ipython().run_cell_magic("mw_live", "", "1 + 1")'
        cell = f"import json\n{SERVE}\nprint(json.dumps(rounds({CELLS}, lambda: {asked})))"

        def ask():
            text = opened.run(cell).text
            return median(json.loads(text[text.rindex("[") : text.rindex("]") + 1]))

        yield ask


def milliseconds(ask):
    scope = {}
    exec(SERVE, scope)
    return median(scope["rounds"](CELLS, ask))


def measure(size, plan):
    for name, aim in AIMS.items():
        what = f"a cell's round trip, {size} tasks"
        try:
            with ours(size) as own, displayed(size) as shown, other(name, size) as theirs:
                found = alternated(plan.rounds(7, 1), own=own, shown=shown, theirs=theirs)
        except Skipped as reason:
            yield Line(what, "ms", [], name, [], aim, str(reason))
            continue
        yield Line(what, "ms", found["own"], name, found["theirs"], aim)
        if name == "monarch":
            displays = f"{what}, displayed"
            yield Line(displays, "ms", found["shown"], name, found["theirs"], DISPLAYED_AIM)


def seconds(act):
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def move(plan):
    array = np.random.default_rng(0).random(ARRAY_MB * 2**17)
    with (
        folder() as path,
        tempfile.TemporaryDirectory(dir=MEMORY) as memory,
        cluster(1, path) as one,
        one.live() as live,
    ):
        file = f"{memory}/array.npy"
        acts = {
            "push": lambda: live.push(array=array),
            "save": lambda: np.save(file, array),
            "pull": lambda: live.pull("array"),
            "load": lambda: np.load(file),
        }
        calls = {name: partial(seconds, act) for name, act in acts.items()}
        alternated(1, **calls)  # memory that is touched for the first time
        found = alternated(plan.rounds(7, 2), **calls)
    what = f"an array of {ARRAY_MB} MB"
    yield Line(f"push {what}", "s", found["push"], "numpy.save to memory", found["save"])
    yield Line(f"pull {what}", "s", found["pull"], "numpy.load from memory", found["load"])


CASES = [
    *(
        Case(
            f"live-{size}",
            f"a live cell's round trip on {size} tasks, against ipyparallel and Monarch",
            partial(measure, size),
            slow=size > 2,
        )
        for size in (2, 8)
    ),
    Case("live-move", f"pushing and pulling {ARRAY_MB} MB, against a file in memory", move),
]
