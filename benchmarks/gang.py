"""What an event costs the gang's state machine, by the number of tasks.

Run it with ``python benchmarks/gang.py``. An event about one task should cost the same in a gang of
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

if TYPE_CHECKING:
    from collections.abc import Callable

SIZES = (2, 10, 100, 1_000, 10_000)
EVENTS = 4_000
"""How many events of each kind are timed per size, in as many gangs as necessary."""

WARM = 10
"""Small gangs that process the same events first: building a large one empties the caches."""

Case = tuple[Gang, list[Event]]


def formed(size: int, *, ps: int = 0) -> Gang:
    """Return a running gang; with a ps, its workers are replaceable."""
    workers = max(size - 2, 1) if ps else size
    gang = Gang(make_tasks(workers, chief=bool(ps), ps=ps), Policy(restarts=10**6, grace=0.0))
    for task in gang.tasks:
        gang.handle(Launch(task))
    return gang


def launches(size: int) -> Case:
    gang = Gang(make_tasks(size))
    return gang, [Launch(task) for task in gang.tasks]


def successes(size: int) -> Case:
    gang = formed(size)
    return gang, [Exited(task, 1, 0) for task in gang.tasks[1:]]  # the last one would end all


def failures(size: int) -> Case:
    return formed(size), [Exited(Task("worker", 0), 1, 1)]


def stops(size: int) -> Case:
    return formed(size), [Stop()]


def consequences(size: int) -> Case:
    gang = formed(size + 1)  # the last exit would end all
    gang.handle(Exited(gang.tasks[0], 1, 1))
    return gang, [Exited(task, 1, None, FailureKind.CONSEQUENCE) for task in gang.tasks[1:-1]]


def replacements(size: int) -> Case:
    gang = formed(size, ps=1)
    workers = [task for task in gang.tasks if task.type == "worker"]
    pairs = ((Exited(task, 1, None), Timer(StartAlone(task))) for task in workers)
    return gang, [event for pair in pairs for event in pair]


def late(size: int) -> Case:
    gang = formed(size)
    return gang, [Exited(task, 0, 1) for task in gang.tasks]


def restarts(size: int) -> Case:
    """Return the exit that restarts all tasks."""
    gang = formed(size)
    gang.handle(Restart())
    for task in gang.tasks[:-1]:
        gang.handle(Exited(task, 1, None))
    return gang, [Exited(gang.tasks[-1], 1, None)]


ONE: dict[str, Callable[[int], Case]] = {
    "a task is launched": launches,
    "a task is done": successes,
    "the first failure ends all": failures,
    "a stop ends all": stops,
    "an exit while all end": consequences,
    "a worker is replaced": replacements,
    "an exit of an earlier attempt": late,
}
ALL: dict[str, Callable[[int], Case]] = {"all restart, per task": restarts}


def microseconds(make: Callable[[int], Case], size: int, *, least: int) -> float:
    """Return the median time of an event, in microseconds."""
    times: list[float] = []
    while len(times) < least:
        gang, case = make(size)
        for other, events in [make(SIZES[0]) for _ in range(WARM)]:
            for event in events:
                other.handle(event)
        for event in case:
            begin = perf_counter()
            gang.handle(event)
            times.append(perf_counter() - begin)
    return median(times) * 1e6


def row(name: str, values: list[float]) -> str:
    """Return a line of the table: the times, and the last as a multiple of the first."""
    cells = "".join(f"{value:10.2f}" for value in values)
    return f"{name:28}{cells}{values[-1] / values[0]:9.2f}x"


def main() -> None:
    gc.disable()
    print(f"{'microseconds, by tasks':28}{''.join(f'{size:10,}' for size in SIZES)}{'ratio':>10}")
    for name, make in ONE.items():
        few = make in (failures, stops)
        times = [microseconds(make, size, least=30 if few else EVENTS) for size in SIZES]
        print(row(name, times), flush=True)
    for name, make in ALL.items():
        times = [microseconds(make, size, least=30) / size for size in SIZES]
        print(row(name, times), flush=True)


if __name__ == "__main__":
    main()
