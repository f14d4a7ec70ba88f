"""Runs live cells on several tasks, one cell after the other."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from functools import singledispatchmethod
from typing import TYPE_CHECKING

from mwmagic.model.live import PROGRAM_CELL

from .events import (
    Answered,
    Await,
    CellAction,
    CellEvent,
    Done,
    Elapsed,
    Examine,
    Found,
    Gone,
    Interrupt,
    Ready,
    Refuse,
    Signal,
    Submit,
    Tell,
    Waits,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .events import End

__all__ = ["Cells"]

SETTLE_SECONDS = 0.3
"""How long after the first exception it is asked where the others are: they may raise too."""

REPEAT_SECONDS = 1.0
"""The pause between two such questions; as often as processor time is measured."""

PATIENCE_SECONDS = 2.0
"""How long after the first task has finished it is asked where the others are."""


@dataclass
class _Current:
    """The cell that runs."""

    cell: int
    tasks: tuple[str, ...]
    raised: list[str] = field(default_factory=list)
    finished: list[str] = field(default_factory=list)
    told: bool = False
    timed: bool = False

    @property
    def pending(self) -> tuple[str, ...]:
        """The tasks that have not answered."""
        answered = {*self.raised, *self.finished}
        return tuple(task for task in self.tasks if task not in answered)


class Cells:
    """Decides what is done about live cells; does no input or output and has no clock.

    A cell begins on all its tasks together, once none of them runs another, and is over when all
    have answered. It is also over when one has raised and all that have not answered wait inside
    the framework: for what raised, and so for ever. Those stay in the cell.

    Parameters
    ----------
    tasks : sequence of str
        The tasks, in rank order.
    program : sequence of str
        Those that first run a program which ends, if there is one: it counts as a cell.
    """

    def __init__(self, tasks: Sequence[str], program: Sequence[str] = ()) -> None:
        self._tasks = tuple(tasks)
        self._program = tuple(program)
        self._ready: set[str] = set()
        self._busy: dict[str, int] = {}
        self._queue: deque[Submit] = deque()
        self._current: _Current | None = None
        self._begin_program()

    def _begin_program(self) -> None:
        """Count every task as busy with the program, also those where it never ends."""
        if self._program:
            self._current = _Current(PROGRAM_CELL, self._program)
            self._busy = dict.fromkeys(self._tasks, PROGRAM_CELL)

    @property
    def current(self) -> int | None:
        """The cell that runs, if one does."""
        return None if self._current is None else self._current.cell

    @property
    def ready(self) -> bool:
        """Whether every task takes cells."""
        return len(self._ready) == len(self._tasks)

    @property
    def busy(self) -> dict[str, int]:
        """The tasks that are in a cell, with its number."""
        return dict(self._busy)

    @property
    def stuck(self) -> tuple[str, ...]:
        """The tasks that are still in a cell that is over."""
        return tuple(
            one for one in self._tasks if self._busy.get(one, self.current) != self.current
        )

    @singledispatchmethod
    def handle(self, event: CellEvent) -> list[CellAction]:
        """Take an event, and return what is to be done about it, in order."""
        raise TypeError(event)

    @handle.register
    def _(self, event: Ready) -> list[CellAction]:
        self._ready.add(event.task)
        return self._advance()

    @handle.register
    def _(self, event: Submit) -> list[CellAction]:
        stuck = tuple(task for task in self.stuck if task in event.tasks)
        if stuck:
            return [Refuse(event.cell, stuck)]
        self._queue.append(event)
        return self._advance()

    @handle.register
    def _(self, event: Answered) -> list[CellAction]:
        if self._busy.get(event.task) != event.cell:
            return []
        del self._busy[event.task]
        one = self._current
        if one is None or one.cell != event.cell:
            return self._advance()
        (one.raised if event.raised else one.finished).append(event.task)
        if not one.pending:
            return self._end()
        return self._watch(one, SETTLE_SECONDS if event.raised else PATIENCE_SECONDS)

    def _watch(self, one: _Current, seconds: float) -> list[CellAction]:
        """Ask soon where the others are; a first exception does not wait for an earlier timer."""
        first = len(one.raised) == 1 and seconds == SETTLE_SECONDS
        if one.timed and not first:
            return []
        one.timed = True
        return [Await(one.cell, seconds)]

    @handle.register
    def _(self, event: Elapsed) -> list[CellAction]:
        known = self._current is not None and self._current.cell == event.cell
        return [Examine(event.cell)] if known else []

    @handle.register
    def _(self, event: Found) -> list[CellAction]:
        one = self._current
        if one is None or one.cell != event.cell:
            return []
        pending = one.pending
        waiting = tuple(task for task in pending if task in event.inside)
        told: list[CellAction] = []
        if waiting and not one.told and (one.raised or set(waiting) <= event.idle):
            one.told = True
            told = [Waits(one.cell, waiting, tuple(one.raised), tuple(one.finished))]
        if one.raised and one.told and event.idle >= {*pending}:
            return [*told, *self._end("waits")]
        return [*told, Await(one.cell, REPEAT_SECONDS)]

    @handle.register
    def _(self, event: Interrupt) -> list[CellAction]:
        one = self._current
        if one is not None and one.cell == event.cell:
            return [Signal(task, one.cell) for task in one.pending]
        queued = [submit for submit in self._queue if submit.cell == event.cell]
        self._queue = deque(submit for submit in self._queue if submit.cell != event.cell)
        return [Done(submit.cell, "withdrawn", submit.tasks) for submit in queued]

    @handle.register
    def _(self, event: Gone) -> list[CellAction]:
        why: End = "reset" if event.reset else "ended"
        ended: list[CellAction] = [Done(one.cell, why, one.tasks) for one in self._queue]
        if self._current is not None:
            ended.insert(0, Done(self._current.cell, why, self._current.pending))
        self._queue.clear()
        self._busy.clear()
        self._ready.clear()
        self._current = None
        self._begin_program()
        return ended

    def _end(self, why: End = "answered") -> list[CellAction]:
        """End the cell that runs, and begin the next one."""
        one, self._current = self._current, None
        over: list[CellAction] = [] if one is None else [Done(one.cell, why, one.pending)]
        return [*over, *self._refuse(), *self._advance()]

    def _refuse(self) -> list[CellAction]:
        """Refuse the cells in the queue whose tasks cannot run them."""
        stuck, kept = {*self.stuck}, deque[Submit]()
        refused: list[CellAction] = []
        for submit in self._queue:
            own = tuple(task for task in submit.tasks if task in stuck)
            refused += [Refuse(submit.cell, own)] if own else []
            kept += [] if own else [submit]
        self._queue = kept
        return refused

    def _advance(self) -> list[CellAction]:
        """Begin the next cell if its tasks can."""
        if self._current is not None or not self._queue:
            return []
        if not self._ready.issuperset(self._queue[0].tasks):
            return []
        submit = self._queue.popleft()
        self._current = _Current(submit.cell, submit.tasks)
        self._busy |= dict.fromkeys(submit.tasks, submit.cell)
        return [Tell(task, submit.cell) for task in submit.tasks]
