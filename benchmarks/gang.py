"""What an event costs the gang's state machine, by the number of tasks.

An event about one task should cost the same in a gang of
10,000 as in one of 2; an event that starts all tasks is measured per task.
"""

from __future__ import annotations

import gc
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

from mwmagic.gang import (
    Event,
    Exited,
    FailureKind,
    Gang,
    Launch,
    Policy,
    Restart,
    StartAlone,
    Stop,
    Timer,
)
from mwmagic.model.cluster import Task, make_tasks

from .case import Case, Line

if TYPE_CHECKING:
    from collections.abc import Callable

SIZES = (2, 10_000)
EVENTS = 4_000
"""How many events of each kind are timed per size, in as many gangs as necessary."""

WARM = 10
"""Small gangs that process the same events first: building a large one empties the caches."""

Situation = tuple[Gang, list[Event]]


def formed(size: int, *, ps: int = 0) -> Gang:
    """Return a running gang; with a ps, its workers are replaceable."""
    workers = max(size - 2, 1) if ps else size
    gang = Gang(make_tasks(workers, chief=bool(ps), ps=ps), Policy(restarts=10**6, grace=0.0))
    for task in gang.tasks:
        gang.handle(Launch(task))
    return gang


def launches(size: int) -> Situation:
    gang = Gang(make_tasks(size))
    return gang, [Launch(task) for task in gang.tasks]


def successes(size: int) -> Situation:
    gang = formed(size)
    return gang, [Exited(task, 1, 0) for task in gang.tasks[1:]]  # the last one would end all


def failures(size: int) -> Situation:
    return formed(size), [Exited(Task("worker", 0), 1, 1)]


def stops(size: int) -> Situation:
    return formed(size), [Stop()]


def consequences(size: int) -> Situation:
    gang = formed(size + 1)  # the last exit would end all
    gang.handle(Exited(gang.tasks[0], 1, 1))
    return gang, [Exited(task, 1, None, FailureKind.CONSEQUENCE) for task in gang.tasks[1:-1]]


def replacements(size: int) -> Situation:
    gang = formed(size, ps=1)
    workers = [task for task in gang.tasks if task.type == "worker"]
    pairs = ((Exited(task, 1, None), Timer(StartAlone(task))) for task in workers)
    return gang, [event for pair in pairs for event in pair]


def late(size: int) -> Situation:
    gang = formed(size)
    return gang, [Exited(task, 0, 1) for task in gang.tasks]


def restarts(size: int) -> Situation:
    """Return the exit that restarts all tasks."""
    gang = formed(size)
    gang.handle(Restart())
    for task in gang.tasks[:-1]:
        gang.handle(Exited(task, 1, None))
    return gang, [Exited(gang.tasks[-1], 1, None)]


ONE: dict[str, Callable[[int], Situation]] = {
    "a task is launched": launches,
    "a task is done": successes,
    "the first failure ends all": failures,
    "a stop ends all": stops,
    "an exit while all end": consequences,
    "a worker is replaced": replacements,
    "an exit of an earlier attempt": late,
}
ALL: dict[str, Callable[[int], Situation]] = {"all restart, per task": restarts}


def microseconds(make: Callable[[int], Situation], size: int, *, least: int) -> float:
    """Return the median time of an event, in microseconds."""
    times: list[float] = []
    while len(times) < least:
        gang, found = make(size)
        for other, events in [make(SIZES[0]) for _ in range(WARM)]:
            for event in events:
                other.handle(event)
        for event in found:
            begin = perf_counter()
            gang.handle(event)
            times.append(perf_counter() - begin)
    return median(times) * 1e6


def figures(make, plan):
    """Return the times of an event in the largest and in the smallest gang."""
    per_task = make in ALL.values()
    few = per_task or make in (failures, stops)
    least = 10 if plan.quick and few else 30 if few else EVENTS
    sizes = (SIZES[-1], SIZES[0])
    for _ in range(plan.rounds(3, 1)):
        times = [microseconds(make, size, least=least) for size in sizes]
        yield [time / size if per_task else time for time, size in zip(times, sizes, strict=True)]


def measure(plan):
    gc.disable()
    for name, make in {**ONE, **ALL}.items():
        ours, theirs = map(list, zip(*figures(make, plan), strict=True))
        what = f"an event of the state machine, {SIZES[-1]:,} tasks: {name}"
        yield Line(what, "µs", ours, f"{SIZES[0]} tasks", theirs)


CASES = [Case("gang", f"an event with {SIZES[-1]:,} tasks, against {SIZES[0]}", measure)]
