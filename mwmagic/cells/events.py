"""What happens to live cells, and what is to be done about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mwmagic.recovery.plan import (
    Align,
    Aligned,
    Compare,
    Compared,
    Recovered,
    Rejoin,
    Rejoined,
    Unable,
)

__all__ = [
    "Abort",
    "Answered",
    "Arrived",
    "Await",
    "Bound",
    "BoundBy",
    "CellAction",
    "CellEvent",
    "Done",
    "Elapsed",
    "End",
    "Examine",
    "Found",
    "Freed",
    "Gone",
    "Interrupt",
    "Meet",
    "Purpose",
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
    """A cell is to run on some tasks, or on each ``alone``, so that an error does not part them."""

    cell: int
    tasks: tuple[str, ...]
    alone: bool = False


@dataclass(frozen=True)
class Answered:
    """A task has run a cell, which raised or did not.

    It was ``freed`` if what it raised comes from its being freed, or interrupted after that.
    """

    task: str
    cell: int
    raised: bool
    freed: bool = False


@dataclass(frozen=True)
class Bound:
    """A task cannot be freed, and why."""

    task: str
    cell: int
    why: BoundBy


@dataclass(frozen=True)
class Arrived:
    """A task waits to make a strategy until its partners are about to make theirs."""

    task: str
    cell: int


@dataclass(frozen=True)
class Interrupt:
    """A cell is to be interrupted, or not to begin."""

    cell: int


@dataclass(frozen=True)
class Gone:
    """The processes are gone: they ended, or were ``reset``."""

    reset: bool = False


BoundBy = Literal["framework", "gpu", "names", "program"]
"""Why a task cannot be freed.

Its framework, other than TensorFlow, has no way to end a collective; there are GPUs, where that is
not known to work; TensorFlow does not have the names that it takes; or a program made the
strategy, before the first cell.
"""

Purpose = Literal["free", "look", "recover"]
"""What a time is set for: to free tasks, to look where they are, or for a whole recovery."""


@dataclass(frozen=True)
class Elapsed:
    """The time is over that was set for a cell."""

    cell: int
    purpose: Purpose


@dataclass(frozen=True)
class Found:
    """The tasks that are inside the framework, and of these the ones that use no CPU."""

    cell: int
    inside: frozenset[str]
    idle: frozenset[str]


End = Literal["answered", "waits", "withdrawn", "ended", "reset"]
"""Why a cell is over.

All have ``answered``; those that have not wait for one that raised, for ever; it was ``withdrawn``
before it began; the processes ``ended``, or were ``reset``.
"""

CellEvent = (
    Ready
    | Submit
    | Answered
    | Bound
    | Arrived
    | Rejoined
    | Compared
    | Aligned
    | Unable
    | Interrupt
    | Gone
    | Elapsed
    | Found
)


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
class Abort:
    """End the collective in which a task waits, and all its collectives until it rejoins."""

    task: str
    cell: int


@dataclass(frozen=True)
class Meet:
    """Have a task make its strategy, now that its partners make theirs."""

    task: str
    cell: int


@dataclass(frozen=True)
class Await:
    """Send `Elapsed` after some seconds."""

    cell: int
    seconds: float
    purpose: Purpose


@dataclass(frozen=True)
class Examine:
    """Find out where the tasks are that have not answered, and send `Found`."""

    cell: int


@dataclass(frozen=True)
class Waits:
    """Tell that tasks wait inside the framework for others, which raised or have finished.

    If they cannot be freed, it says why.
    """

    cell: int
    waiting: tuple[str, ...]
    raised: tuple[str, ...]
    finished: tuple[str, ...]
    why: BoundBy | None = None


@dataclass(frozen=True)
class Freed:
    """Tell which tasks were freed, and what they waited for.

    These are tasks that ``raised``, have ``finished``, or are ``absent`` from the cell.
    """

    cell: int
    freed: tuple[str, ...]
    raised: tuple[str, ...]
    finished: tuple[str, ...]
    absent: tuple[str, ...]


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


CellAction = (
    Tell
    | Signal
    | Abort
    | Meet
    | Rejoin
    | Compare
    | Align
    | Await
    | Examine
    | Waits
    | Freed
    | Recovered
    | Done
    | Refuse
)
