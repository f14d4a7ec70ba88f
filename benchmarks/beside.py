"""mwmagic beside each of its peers: two tasks, the same work, in turn, in kernels of their own."""

from __future__ import annotations

import os
import re
import signal
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from statistics import median
from uuid import uuid4

from labels import LABEL, processes

from . import environments, peers
from .case import Case, Line
from .kernels import kernel
from .ratio import alternated

TASKS = 2
TRIPS = 20
NOTE_SECONDS = 120.0
"""How long a peer may take to start its tasks, or to start them again."""

TOLD_SECONDS = 60.0
"""How long a peer may take to tell that a task was killed."""

LEFT_SECONDS = 5.0
"""How long after the kernel's end its processes are counted."""

POLL_SECONDS = 0.001


class Notebook:
    """A kernel with a peer in it, and the notes of the peer's tasks."""

    def __init__(self, peer, opened, folder, label):
        self.peer, self.kernel, self.folder, self.label = peer, opened, folder, label

    def notes(self):
        """Wait until all tasks have noted; return the process and the moment of each, by rank."""
        deadline, wanted = time.monotonic() + NOTE_SECONDS, {str(rank) for rank in range(TASKS)}
        while {path.stem for path in self.noted()} < wanted:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.peer.name}: no note of all tasks")
            time.sleep(POLL_SECONDS)
        found = {}
        for path in self.noted():
            found[int(path.stem)] = (int(path.suffix[1:]), float(path.read_text()))
            path.unlink()
        return found

    def noted(self):
        return [path for path in self.folder.iterdir() if path.suffix != ".new"]

    def begin(self, cells):
        """Run cells, of which the last may last; return its request, notes, and their seconds."""
        began = time.monotonic()
        for cell in cells[:-1]:
            self.kernel.run(cell)
        request = self.kernel.send(cells[-1])
        found = self.notes()
        return request, found, max(moment for _, moment in found.values()) - began


@contextmanager
def notebook(peer):
    """Yield a new kernel that is ready to start a peer; nothing of it is left afterwards."""
    label = uuid4().hex
    python = environments.python(peer.environment) if peer.environment else sys.executable
    with tempfile.TemporaryDirectory(prefix="mwmagic-benchmark-") as name:
        folder = Path(name, "notes")
        folder.mkdir()
        env = {LABEL: label, "BENCHMARK_NOTES": str(folder), **peer.env}
        try:
            with kernel(python, name, **env) as opened:
                for cell in peer.setup:
                    opened.run(cell)
                yield Notebook(peer, opened, folder, label)
        finally:
            clear(label)


def clear(label):
    """Kill what is left of a notebook."""
    while left := processes(label):
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(POLL_SECONDS)


def interactive(peer):
    """Start, and evaluate where it runs cells; return the seconds."""
    with notebook(peer) as one:
        request, _, start = one.begin(peer.start)
        one.kernel.hear(request)
        found = {"start": start}
        if peer.trip:
            for _ in range(3):
                one.kernel.run(peer.trip)
            found["trip"] = median(one.kernel.run(peer.trip).seconds for _ in range(TRIPS))
        return found


def waiting(one):
    """Start what sleeps; return its request, and the tasks' processes."""
    if one.peer.trip:  # a session comes first
        request, *_ = one.begin(one.peer.start)
        one.kernel.hear(request)
        cells = (one.peer.waits,)
    else:
        cells = (*one.peer.start[:-1], one.peer.waits)
    request, found, _ = one.begin(cells)
    return request, {rank: pid for rank, (pid, _) in found.items()}


def blame(peer):
    """Kill the second task; return the seconds until it is reported, and whether with its name."""
    with notebook(peer) as one:
        request, pids = waiting(one)
        began = time.monotonic()
        os.kill(pids[1], signal.SIGKILL)
        try:
            text = one.kernel.hear(request, TOLD_SECONDS).text
            if peer.told:
                text += one.kernel.hear(one.kernel.send(peer.told), TOLD_SECONDS).text
        except TimeoutError:
            return {"told": TOLD_SECONDS, "named": False}
        return {"told": time.monotonic() - began, "named": bool(re.search(peer.names, text))}


def left(peer):
    """Kill the kernel; return how many processes there are after a while."""
    with notebook(peer) as one:
        waiting(one)
        os.kill(one.kernel.pid, signal.SIGKILL)
        time.sleep(LEFT_SECONDS)
        return {"left": len(processes(one.label))}


def restart(peer):
    """Kill the second task of a program; return the seconds until all have started again."""
    if not peer.restarts:
        return {}
    with notebook(peer) as one:
        _, found, _ = one.begin(peer.restarts)
        began = time.monotonic()
        os.kill(found[1][0], signal.SIGKILL)
        try:
            again = one.notes()
        except TimeoutError:
            return {"restart": NOTE_SECONDS}
        return {"restart": max(moment for _, moment in again.values()) - began}


SESSIONS = (peers.IPYPARALLEL,)
PROGRAMS = (peers.TORCHRUN, peers.RAY)

WORKS = {
    "start": ("start to both tasks' first line", "s"),
    "trip": ("a cell's round trip in a notebook", "s"),
    "restart": ("SIGKILL of a task to both running again", "s"),
    "told": ("SIGKILL of a task until the notebook reports it", "s"),
    "left": (f"processes left {LEFT_SECONDS:.0f} s after SIGKILL of the kernel", ""),
}


def worked(peer):
    """Do all of the work; return what was measured."""
    found = {}
    for work in (interactive, blame, left, restart):
        found |= work(peer)
    return found


def named(side):
    """Return how often a side named the task that was killed."""
    return f"{sum(one['named'] for one in side)} of {len(side)}"


def measure(own, peer, plan):
    calls = {"ours": partial(worked, own), "theirs": partial(worked, peer)}
    found = alternated(plan.rounds(3, 1), **calls)
    for work, (what, unit) in WORKS.items():
        ours, theirs = ([one[work] for one in found[side] if work in one] for side in found)
        if ours and theirs:
            yield Line(f"{what}, {own.name}", unit, ours, peer.name, theirs, note=said(work, found))


def said(work, found):
    if work != "told":
        return ""
    return f"names the task: mwmagic {named(found['ours'])}, the other {named(found['theirs'])}"


def case(own, peer):
    return Case(
        f"peer-{peer.environment}",
        f"start, round trip, restart, blame and what is left, against {peer.name}",
        partial(measure, own, peer),
        slow=True,
    )


CASES = [
    *(case(peers.LIVE, peer) for peer in SESSIONS),
    *(case(peers.PROGRAMS, peer) for peer in PROGRAMS),
]
