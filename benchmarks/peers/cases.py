"""mwmagic beside each of its peers: two tasks, the same work, in turn."""

from __future__ import annotations

from functools import partial

from benchmarks.case import Case, Line
from benchmarks.ratio import alternated

from . import ipyparallel, jupyter_distributed, monarch, mwmagic, nbdistributed, ray, torchrun
from .work import LEFT_SECONDS, blame, interactive, left, restart

SESSIONS = (ipyparallel.PEER, monarch.PEER, nbdistributed.PEER, jupyter_distributed.PEER)
PROGRAMS = (torchrun.PEER, ray.PEER)

WORKS = {
    "start": ("start to both tasks' first line", "s"),
    "trip": ("a cell's round trip in a notebook", "s"),
    "bytes": ("sent to the page for what tasks print", "byte/byte"),
    "restart": ("SIGKILL of a task to both running again", "s"),
    "told": ("SIGKILL of a task until the notebook tells of it", "s"),
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
    *(case(mwmagic.LIVE, peer) for peer in SESSIONS),
    *(case(mwmagic.PROGRAMS, peer) for peer in PROGRAMS),
]
