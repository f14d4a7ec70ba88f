"""From a launch to the first line of a small script, in all of its processes."""

from __future__ import annotations

import time
from contextlib import ExitStack
from functools import partial

from . import environments
from .case import Case, Line, Skipped
from .clusters import MOMENT, Moments, by_hand, cluster, folder, torchrun
from .ratio import alternated

PROGRAM = MOMENT + "moment()\n"


class Launch:
    """Launches a program in one way again and again."""

    def __init__(self, path, size, start):
        self.moments, self.size, self.start = Moments(path), size, start

    def seconds(self):
        began = time.monotonic()
        finish = self.start()
        found = self.moments.next(self.size)
        finish()
        return max(found.values()) - began


def by_mwmagic(one, path):
    run = one.run("main.py", cwd=path)
    return run.wait


def by_processes(start, *args):
    found = start(*args)
    processes = found if isinstance(found, list) else [found]
    return lambda: [one.wait() for one in processes]


def ways(stack, size):
    """Return how to launch, by name, and why torchrun is missing."""
    paths = {
        name: stack.enter_context(folder(PROGRAM)) for name in ("bare", "cold", "warm", "torchrun")
    }
    starts = {"bare": partial(by_processes, by_hand, paths["bare"], size)}
    for name in ("cold", "warm"):
        one = stack.enter_context(cluster(size, paths[name], warm=name == "warm"))
        starts[name] = partial(by_mwmagic, one, paths[name])
    missing = ""
    try:
        python = environments.python("torchrun")
        starts["torchrun"] = partial(by_processes, torchrun, python, paths["torchrun"], size)
    except Skipped as reason:
        missing = str(reason)
    launches = {name: Launch(paths[name], size, start).seconds for name, start in starts.items()}
    return launches, missing


def measure(size, plan):
    with ExitStack() as stack:
        launches, missing = ways(stack, size)
        for one in launches.values():
            one()  # what is read from disk for the first time
        found = alternated(plan.rounds(9, 3), **launches)
    for ours, theirs in (("cold", "bare"), ("warm", "cold"), ("cold", "torchrun")):
        what = f"launch to the first line, {size} tasks, {ours}"
        against = "bare Popen" if theirs == "bare" else theirs
        note = missing if theirs == "torchrun" else ""
        other = found.get(theirs, [])
        yield Line(what, "s", found[ours], against, other, note=note)


CASES = [
    Case(
        f"launch-{size}",
        f"launch of {size} tasks to their first line, against bare Popen and torchrun",
        partial(measure, size),
        slow=size > 4,
    )
    for size in (2, 4, 8, 16)
]
