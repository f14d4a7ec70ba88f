"""What happens to live cells, and what is to be done about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = [
    "Answered",
    "Await",
    "CellAction",
    "CellEvent",
    "Done",
    "Elapsed",
    "End",
    "Examine",
    "Found",
    "Gone",
    "Interrupt",
    "Ready",
    "Refuse",
    "Signal",
    "Submit",
    "Tell",
    "Waits",
]


@dataclass(frozen=True)
class Ready:
    """A task's interpreter takes cells."""

    task: str


@dataclass(frozen=True)
class Submit:
    """A cell is to run on some tasks."""

    cell: int
    tasks: tuple[str, ...]


@dataclass(frozen=True)
class Answered:
    """A task has run a cell, which raised or did not."""

    task: str
    cell: int
    raised: bool


@dataclass(frozen=True)
class Interrupt:
    """A cell is to be interrupted, or not to begin."""

    cell: int


@dataclass(frozen=True)
class Gone:
    """The processes are gone: they ended, or were ``reset``."""

    reset: bool = False


@dataclass(frozen=True)
class Elapsed:
    """The time is over that was set for a cell."""

    cell: int


@dataclass(frozen=True)
class Found:
    """The tasks that are inside the framework, and of these the ones that use no processor."""

    cell: int
    inside: frozenset[str]
    idle: frozenset[str]


End = Literal["answered", "waits", "withdrawn", "ended", "reset"]
"""Why a cell is over.

All have ``answered``; those that have not wait for one that raised, for ever; it was ``withdrawn``
before it began; the processes ``ended``, or were ``reset``.
"""

CellEvent = Ready | Submit | Answered | Interrupt | Gone | Elapsed | Found


@dataclass(frozen=True)
class Tell:
    """Have a task run a cell."""

    task: str
    cell: int


@dataclass(frozen=True)
class Signal:
    """Interrupt a cell on a task."""

    task: str
    cell: int


@dataclass(frozen=True)
class Await:
    """Send `Elapsed` after some seconds."""

    cell: int
    seconds: float


@dataclass(frozen=True)
class Examine:
    """Find out where the tasks are that have not answered, and send `Found`."""

    cell: int


@dataclass(frozen=True)
class Waits:
    """Tell that tasks wait inside the framework for others, which raised or have finished."""

    cell: int
    waiting: tuple[str, ...]
    raised: tuple[str, ...]
    finished: tuple[str, ...]


@dataclass(frozen=True)
class Done:
    """Tell that a cell is over, why, and which tasks did not answer."""

    cell: int
    why: End = "answered"
    unanswered: tuple[str, ...] = ()


@dataclass(frozen=True)
class Refuse:
    """Tell that a cell cannot run, since tasks are still in an earlier one that is over."""

    cell: int
    stuck: tuple[str, ...]


CellAction = Tell | Signal | Await | Examine | Waits | Done | Refuse
