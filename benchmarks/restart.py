"""From SIGKILL of one worker until all run again."""

from __future__ import annotations

import os
import signal
import time
from contextlib import ExitStack, contextmanager
from functools import partial

from . import environments
from .case import Case, Line, Skipped
from .clusters import MOMENT, Moments, cluster, end, folder, torchrun
from .ratio import alternated

PROGRAM = (
    MOMENT
    + """
moment()
print("step", _os.environ.get("MWMAGIC_ATTEMPT"), "loss 0.5", flush=True)
_time.sleep(600)
"""
)
"""Each attempt prints a step of its own: it got further than the one before."""

PAUSE_SECONDS = 0.2
"""Between two kills, so that what the last one left to do is done."""


class Gang:
    """The processes that have noted that they run."""

    def __init__(self, path, size):
        self.moments, self.size = Moments(path), size
        self.pids = self.moments.next(size)

    def restarted(self):
        """Kill one process; return the seconds until all run again."""
        time.sleep(PAUSE_SECONDS)
        began = time.monotonic()
        os.kill(max(self.pids), signal.SIGKILL)
        self.pids = self.moments.next(self.size)
        return max(self.pids.values()) - began


@contextmanager
def by_mwmagic(size, *, warm):
    with folder(PROGRAM) as path, cluster(size, path, warm=warm, restarts=10**6) as one:
        run = one.run("main.py", cwd=path)
        yield Gang(path, size)
        run.stop(grace=0)


@contextmanager
def by_torchrun(size):
    with folder(PROGRAM) as path:
        launcher = torchrun(environments.python("torchrun"), path, size, "--max-restarts=1000")
        try:
            yield Gang(path, size)
        finally:
            end(launcher)


def measure(size, plan):
    missing = ""
    with ExitStack() as stack:
        gangs = {
            "cold": stack.enter_context(by_mwmagic(size, warm=False)),
            "warm": stack.enter_context(by_mwmagic(size, warm=True)),
        }
        try:
            gangs["torchrun"] = stack.enter_context(by_torchrun(size))
        except Skipped as reason:
            missing = str(reason)
        calls = {name: gang.restarted for name, gang in gangs.items()}
        found = alternated(plan.rounds(9, 3), **calls)
    for name in ("cold", "warm"):
        what = f"SIGKILL of one worker to all running again, {size} tasks, {name}"
        yield Line(what, "s", found[name], "torchrun", found.get("torchrun", []), 0.5, missing)


CASES = [
    Case(
        f"restart-{size}",
        f"SIGKILL of one of {size} tasks until all run again, against torchrun",
        partial(measure, size),
        slow=size > 4,
    )
    for size in (2, 4, 16)
]
