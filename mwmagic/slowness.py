"""Which task holds up the others, how much, and why.

The collective makes the steps of all tasks as long as those of the slowest, so their lengths say
nothing. The slow task is the one that waits least for the others. Two of its parts are measured to
the microsecond: the wait for its input, and its callbacks. They decide if they can. The wait for
others is only sampled, and what a step computes is what is left, so a loss has to be larger there.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import fields, replace
from operator import attrgetter
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal

from mwmagic.model.findings import SlowCause, Slowdown, Window

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    Row = Mapping[str, Window]

__all__ = ["LEAST_COUNT", "judge"]

LEAST_COUNT = 3
"""Fewer windows say nothing: anything may disturb one."""

RECENT_COUNT = 8
"""The windows that a verdict rests on: the newest."""

DEAD_RATIO = 0.05
"""A smaller part of a step is no loss."""

CLEAR_RATIO = 0.1
"""The least part of a step that is worth a sentence."""

COMMON_RATIO = 0.2
"""The least part that is worth one if all tasks lose it alike, or in turn."""

COMMON_SECONDS = 0.005
"""The least part of a step that all tasks lose alike. A short step has a few milliseconds in which
TensorFlow hands over a batch that is ready, longer if its tasks share CPUs: trainings with steps of
8 and 15 ms got the advice to prefetch what they did prefetch."""

COVER_RATIO = 0.8
"""The least part of a loss that a cause has to explain."""

OFTEN_RATIO = 0.75
"""In how many of the windows the same task is the slow one, if it always is."""

WORK_RATIO = 1.5
"""How many times the CPU time of any other task is more work, and no disturbance."""

STOPPED_RATIO = 0.2
"""The least part of the looks at a process at which it was stopped."""

FAULTS_COUNT = 1.0
"""The pages from a disk in each step that are not a program's beginning."""

PAGE_SECONDS = 20e-6
"""The CPU time that it takes at least to read one: so many of them look like more work."""

SLOWER_RATIO = 0.2
"""The least part of a step that a task has to wait less than the others, to be called slower."""

WAITING_RATIO = 0.5
"""The part of a step that all tasks wait for each other, if what they send takes too long."""

TRACED_RATIO = 0.3
"""The least part of a loss in which TensorFlow builds graphs, if it is lost to functions that are
traced again: to optimise and to prepare a new graph takes the rest. Pages are alike."""

LINK_RATIO = 2.0
"""How many times as long as any other a link is busy that is slower than the others."""

_NUMBERS = [one.name for one in fields(Window) if isinstance(one.default, float)]
_LINES = ("at_input", "at_main", "at_own", "peer")


def judge(
    windows: Mapping[str, Sequence[Window]], stopped: Mapping[str, float] | None = None
) -> Slowdown | None:
    """Return what makes the steps of tasks that train together slow; None if nothing does for sure.

    `stopped` says in which part of the looks at a task's process it was stopped.
    """
    rows = _common(windows)
    if len(rows) < LEAST_COUNT:
        return None
    means = _means(rows)
    alike = _all(rows, means)
    if alike is not None or len(windows) == 1:
        return alike
    known = [row for row in rows if all(one.waits is not None for one in row.values())]
    certain = (
        _stopped(means, stopped or {})
        or _throttled(rows, means)
        or _late(rows, means)
        or _link(rows, means)
    )
    if certain is not None or len(known) < LEAST_COUNT:
        return certain or _more_work(rows, means)
    waits = _means(known)
    return (
        _slower(known, waits)
        or _more_work(rows, means)
        or _queued(known, waits)
        or _waiting(known, waits)
    )


def _common(windows: Mapping[str, Sequence[Window]]) -> list[dict[str, Window]]:
    """Return the newest windows that all tasks have, the oldest first."""
    by_first = [{one.first: one for one in each if one.wall > 0} for each in windows.values()]
    shared = sorted(set.intersection(*map(set, by_first))) if by_first else []
    return [
        {task: own[first] for task, own in zip(windows, by_first, strict=True)}
        for first in shared[-RECENT_COUNT:]
    ]


def _means(rows: Sequence[Row]) -> dict[str, Window]:
    return {task: _mean([row[task] for row in rows]) for task in rows[0]}


def _mean(windows: Sequence[Window]) -> Window:
    """Return the mean of windows, with the lines that were seen most often."""
    numbers: dict[str, Any] = {
        name: fmean(getattr(one, name) for one in windows) for name in _NUMBERS
    }
    texts: dict[str, Any] = {
        name: _commonest(getattr(one, name) for one in windows) for name in _LINES
    }
    known = [one.waits for one in windows if one.waits is not None]
    waits = fmean(known) if known else None
    return Window(first=0, steps=1, waits=waits, **numbers, **texts)


def _commonest(lines: Iterable[str | None]) -> str | None:
    counted = Counter(line for line in lines if line is not None).most_common(1)
    return counted[0][0] if counted else None


def _apart(window: Window) -> float:
    """Return how long a task keeps the others waiting at least, in each step."""
    return window.input + window.callbacks


def _unwaiting(window: Window) -> float:
    """Return how much of a step a task does anything but wait for the others."""
    return window.wall - (window.waits or 0.0)


def _excess(row: Row, task: str, of: Callable[[Window], float]) -> float:
    """Return how much more of something a task has than any other."""
    return of(row[task]) - max(of(row[one]) for one in row if one != task)


def _lead(row: Row, of: Callable[[Window], float]) -> tuple[str, float]:
    """Return the task that has most of something, and how much more than the next one."""
    first, second = sorted(row, key=lambda task: of(row[task]), reverse=True)[:2]
    return first, of(row[first]) - of(row[second])


def _stopped(means: Row, stopped: Mapping[str, float]) -> Slowdown | None:
    """Return that a task is stopped now and then, as no other is."""
    often = [task for task in means if stopped.get(task, 0.0) >= STOPPED_RATIO]
    if len(often) != 1:
        return None
    task = often[0]
    return Slowdown(SlowCause.STOPPED, task, share=stopped[task], step=means[task].wall)


def _throttled(rows: Sequence[Row], means: Row) -> Slowdown | None:
    """Return which task's control group was not allowed to run, by the kernel's own account.

    That adds up its CPUs, so the task loses no more than the time in which it neither computed nor
    waited for others.
    """
    of = attrgetter("throttled")
    task, more = _lead(means, of)
    own = means[task]
    often = sum(_excess(row, task, of) >= _clear(row) for row in rows) >= OFTEN_RATIO * len(rows)
    share = min(more, _unwaiting(own) - own.cpu) / own.wall
    if not often or share < SLOWER_RATIO:
        return None
    return Slowdown(SlowCause.THROTTLED, task, "always", share, own.wall)


def _late(rows: Sequence[Row], means: Row) -> Slowdown | None:
    """Return which task waits for its input, or is in its callbacks, while the others wait."""
    leads = [_lead(row, _apart) for row in rows]
    shares = [lost / row[task].wall for row, (task, lost) in zip(rows, leads, strict=True)]
    late = [task for (task, _), share in zip(leads, shares, strict=True) if share >= DEAD_RATIO]
    if len(late) < LEAST_COUNT:
        return None
    task, times = Counter(late).most_common(1)[0]
    step = means[task].wall
    if times < OFTEN_RATIO * len(late):
        if fmean(shares) < COMMON_RATIO or len(late) < OFTEN_RATIO * len(rows):
            return None
        each = [_lateness(row, one) for row, (one, _) in zip(rows, leads, strict=True)]
        same = len(set(each)) == 1 and each[0] is not None
        return Slowdown(each[0], None, "in-turn", fmean(shares), step) if same and each[0] else None
    other, lost = max(_apart(means[one]) for one in means if one != task), _apart(means[task])
    share, cause = (lost - other) / step, _lateness(means, task)
    if times < LEAST_COUNT or share < CLEAR_RATIO or cause is None:
        return None
    when: Literal["always", "sometimes"]
    when = "always" if times >= OFTEN_RATIO * len(rows) else "sometimes"
    return Slowdown(cause, task, when, share, step, _line(cause, means[task]))


def _lateness(row: Row, task: str) -> SlowCause | None:
    """Return what covers the time that a task loses; None if several things do."""
    enough = COVER_RATIO * _excess(row, task, _apart)

    def covers(name: str) -> bool:
        return _excess(row, task, attrgetter(name)) >= enough

    overhead = _overhead(row, task, _excess(row, task, _apart))
    if overhead is not None:
        return overhead
    if covers("callbacks"):
        return SlowCause.CODE_WAITS if covers("own") else SlowCause.CALLBACKS
    if not covers("input"):
        return None
    if _excess(row, task, attrgetter("faults")) >= FAULTS_COUNT:
        return SlowCause.PAGING
    if covers("cpu"):
        return SlowCause.INPUT_COMPUTES
    return SlowCause.NEIGHBOUR if covers("queued") else SlowCause.INPUT_WAITS


def _overhead(row: Row, task: str, lost: float) -> SlowCause | None:
    """Return what takes the most of a task's lost time that is neither the user's nor a step's."""
    if _excess(row, task, attrgetter("collected")) >= COVER_RATIO * lost > 0:
        return SlowCause.GARBAGE
    if _excess(row, task, attrgetter("faults")) * PAGE_SECONDS >= TRACED_RATIO * lost > 0:
        return SlowCause.PAGING
    traces = _excess(row, task, attrgetter("traced")) >= TRACED_RATIO * lost > 0
    return SlowCause.TRACING if traces else None


_PARTS = {
    SlowCause.STOPPED: "held",
    SlowCause.CODE_WAITS: "own",
    SlowCause.MORE_WORK: "cpu",
    SlowCause.NEIGHBOUR: "queued",
}
"""What makes a task's steps slow if it covers what the task waits less than the others, the first
one first."""


def _slower(rows: Sequence[Row], means: Row) -> Slowdown | None:
    """Return which task waits less for the others than they do for it, and why if that is known."""
    leads = [_lead(row, _unwaiting) for row in rows]
    late = [task for row, (task, lost) in zip(rows, leads, strict=True) if lost >= _clear(row)]
    task, times = Counter(late).most_common(1)[0] if late else ("", 0)
    if times < OFTEN_RATIO * len(rows):
        return None
    own, lost = means[task], _excess(means, task, _unwaiting)
    share = lost / own.wall
    if share < SLOWER_RATIO:
        return None
    covering = (
        cause
        for cause, part in _PARTS.items()
        if _excess(means, task, attrgetter(part)) >= COVER_RATIO * lost
    )
    cause = _overhead(means, task, lost) or next(covering, None)
    pages = _excess(means, task, attrgetter("faults")) >= FAULTS_COUNT
    if pages and cause in (SlowCause.STOPPED, None):  # all threads may wait for the same page
        cause = SlowCause.PAGING
    if cause is SlowCause.MORE_WORK and own.at_input:
        cause = SlowCause.INPUT_COMPUTES  # or, rarely, Python in the step
    if cause is not None:
        return Slowdown(cause, task, "always", share, own.wall, _line(cause, own))
    return Slowdown(SlowCause.UNCLEAR, task, "always", share, own.wall, own.at_main)


def _clear(row: Row) -> float:
    return CLEAR_RATIO * min(one.wall for one in row.values())


_LINE = {
    SlowCause.INPUT_WAITS: "at_input",
    SlowCause.INPUT_COMPUTES: "at_input",
    SlowCause.PAGING: "at_input",
    SlowCause.CALLBACKS: "at_main",
    SlowCause.TRACING: "at_main",
    SlowCause.CODE_WAITS: "at_own",
}
"""The line that belongs to a cause."""


def _line(cause: SlowCause, own: Window) -> str | None:
    """Return the user's line that belongs to a cause."""
    return getattr(own, _LINE[cause]) if cause in _LINE else None


def _more_work(rows: Sequence[Row], means: Row) -> Slowdown | None:
    """Return which task computes more than the others; how much of a step that takes is not known.

    Several CPUs may share it, and some of it may continue while the others compute.
    """
    of = attrgetter("cpu")
    task, _ = _lead(means, of)
    if not all(_excess(row, task, of) >= _more(row[task]) for row in rows):
        return None
    own, others = of(means[task]), of(means[task]) - _excess(means, task, of)
    line = means[task].at_input  # Python in the input delays the training loop more than its input
    cause = SlowCause.INPUT_COMPUTES if line else SlowCause.MORE_WORK
    cause = _overhead(means, task, own - others) or cause
    return Slowdown(cause, task, at=line, times=own / others if others else None)


def _more(own: Window) -> float:
    """Return how much more CPU time than any other a task uses at least if it computes more."""
    return max(own.cpu * (1 - 1 / WORK_RATIO), COMMON_RATIO * own.wall)


_COMMON = {
    "collected": SlowCause.GARBAGE,
    "traced": SlowCause.TRACING,
    "input": SlowCause.INPUT_WAITS,
    "callbacks": SlowCause.CALLBACKS,
    "throttled": SlowCause.THROTTLED,
}
"""What all tasks may lose, the first one first."""


def _lost(window: Window, part: str) -> float:
    """Return the part of a step that is lost to something, as far as no CPU was too busy for it."""
    busy = window.queued if part == "input" else 0.0
    return (float(getattr(window, part)) - busy) / window.wall


def _all(rows: Sequence[Row], means: Row) -> Slowdown | None:
    """Return what all tasks lose.

    While one waits for its input, so do the others for theirs, unseen: the longest wait counts.
    """
    step = fmean(one.wall for one in means.values())
    for part, cause in _COMMON.items():
        least = [min(_lost(one, part) for one in row.values()) for row in rows]
        often = sum(share >= CLEAR_RATIO for share in least) >= OFTEN_RATIO * len(rows)
        share = max(_lost(one, part) for one in means.values())
        if often and share >= COMMON_RATIO and share * step >= COMMON_SECONDS:
            slept = all(one.own >= COVER_RATIO * one.callbacks for one in means.values())
            loops = cause is SlowCause.CALLBACKS and slept
            found = SlowCause.CODE_WAITS if loops else cause
            lines = [_line(found, one) for one in means.values()]
            return Slowdown(found, None, "always", share, step, _commonest(lines))
    return None


def _queued(rows: Sequence[Row], means: Row) -> Slowdown | None:
    """Return which task waits longer for a CPU than the others, and not longer for them."""
    of = attrgetter("queued")
    task, _ = _lead(means, of)
    lost, step = _excess(means, task, of), means[task].wall
    often = sum(_excess(row, task, of) >= _clear(row) for row in rows) >= OFTEN_RATIO * len(rows)
    if not often or lost < SLOWER_RATIO * step or _excess(means, task, _unwaiting) < 0:
        return None
    return Slowdown(SlowCause.NEIGHBOUR, task, "always", lost / step, step)


def _waiting(rows: Sequence[Row], means: Row) -> Slowdown | None:
    """Return that all tasks mostly wait for what they send each other, over one link or over all.

    TCP knows for how long it had sent data that had not arrived.
    """
    least = [min((one.waits or 0.0) / one.wall for one in row.values()) for row in rows]
    share = min((one.waits or 0.0) / one.wall for one in means.values())
    often = sum(each >= WAITING_RATIO for each in least) >= OFTEN_RATIO * len(rows)
    if not often or share < WAITING_RATIO:
        return None
    own = max(means.values(), key=attrgetter("sending"))
    step = fmean(one.wall for one in means.values())
    found = Slowdown(SlowCause.COLLECTIVE, None, "always", share, step)
    return _sent(found, own) if own.sending >= COVER_RATIO * share * own.wall else found


def _link(rows: Sequence[Row], means: Row) -> Slowdown | None:
    """Return which task sends over a link that is slower than the others, to another machine.

    Each task has to send to a machine of its own: a slow one then has two slow links, to it and
    from it. Data within a machine is underway for as long as its CPUs have no time for it.
    """
    task = max(means, key=lambda one: means[one].sending)
    own = means[task]
    busy = [row[task].sending >= WAITING_RATIO * row[task].wall for row in rows]
    apart = len({one.peer for one in means.values()}) == len(means)
    slow = sum(LINK_RATIO * one.sending > own.sending for one in means.values())
    often = sum(busy) >= OFTEN_RATIO * len(rows)
    if not (often and apart and slow <= 2 < len(means)):  # noqa: PLR2004 - as said above
        return None
    return _sent(Slowdown(SlowCause.LINK, task, "always", own.sending / own.wall, own.wall), own)


def _sent(found: Slowdown, own: Window) -> Slowdown:
    """Add to a verdict what a task sends, and how fast."""
    return replace(found, sent=own.sent, rate=own.sent / own.sending, peer=own.peer)
