"""Runs live cells on several tasks, one cell after the other."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mwmagic.model.live import PROGRAM_CELL
from mwmagic.recovery.plan import Aligned, Compared, Recovery, Rejoined, Unable

from .events import (
    Abort,
    Answered,
    Arrived,
    Await,
    Bound,
    CellAction,
    CellEvent,
    Done,
    Elapsed,
    Examine,
    Found,
    Freed,
    Gone,
    Interrupt,
    Meet,
    Ready,
    Refuse,
    Signal,
    Submit,
    Tell,
    Waits,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .events import BoundBy, End

__all__ = ["Cells"]

SETTLE_SECONDS = 0.3
"""How long after the first exception the others are freed: they may raise too."""

REPEAT_SECONDS = 1.0
"""The pause between two questions where the others are; as often as CPU time is measured."""

PATIENCE_SECONDS = 2.0
"""How long after the first task has finished it is asked where the others are."""

CERTAIN_LOOKS = 2
"""How often in a row tasks must be seen waiting for one that finished before they are freed."""

STUBBORN_LOOKS = 5
"""After how many looks a task that was freed, and still waits, counts as one that cannot be."""

RECOVERY_SECONDS = 60.0
"""How long tasks may take to rejoin their collectives and align their variables."""


@dataclass
class _Current:
    """The cell that runs."""

    cell: int
    tasks: tuple[str, ...]
    alone: bool = False
    raised: list[str] = field(default_factory=list)
    finished: list[str] = field(default_factory=list)
    freed: list[str] = field(default_factory=list)
    arrived: list[str] = field(default_factory=list)
    bound: dict[str, BoundBy] = field(default_factory=dict)
    interrupted: bool = False
    aborted: bool = False
    told: bool = False
    hurried: bool = False
    looking: bool = False
    looks: int = 0
    recovery: Recovery | None = None

    @property
    def pending(self) -> tuple[str, ...]:
        """The tasks that have not answered."""
        answered = {*self.raised, *self.finished, *self.freed}
        return tuple(task for task in self.tasks if task not in answered)

    def missing(self, partners: Sequence[str]) -> tuple[str, ...]:
        """Return the partners that will not come to a collective any more."""
        return tuple(task for task in partners if task not in self.pending)


class Cells:
    """Decides what is done about live cells; does no input or output and has no clock.

    A cell begins on all its tasks together, once none of them runs another, and is over when all
    have answered. A task that waits in a collective for one that raised, or finished, waits for
    ever, and so it is freed; then all tasks rejoin their collectives before the cell is over.
    If a task cannot be freed, the cell is over when all that have not answered wait, and those stay
    in it.
    """

    def __init__(
        self,
        tasks: Sequence[str],
        partners: Sequence[str] | None = None,
        program: Sequence[str] = (),
    ) -> None:
        self._tasks = tuple(tasks)
        self._partners = self._tasks if partners is None else tuple(partners)
        self._program = tuple(program)
        self._ready: set[str] = set()
        self._busy: dict[str, int] = {}
        self._queue: deque[Submit] = deque()
        self._current: _Current | None = None
        self._epoch = 0
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

    def handle(self, event: CellEvent) -> list[CellAction]:  # noqa: C901, PLR0911 - a case an event
        """Take an event, and return what is to be done about it, in order."""
        match event:
            case Ready():
                return self._take_ready(event)
            case Submit():
                return self._take_submit(event)
            case Answered():
                return self._take_answered(event)
            case Elapsed():
                return self._take_elapsed(event)
            case Found():
                return self._take_found(event)
            case Bound():
                return self._take_bound(event)
            case Arrived():
                return self._take_arrived(event)
            case Interrupt():
                return self._take_interrupt(event)
            case Rejoined() | Compared() | Aligned() | Unable():
                return self._take_rejoined(event)
            case Gone():
                return self._take_gone(event)

    def _take_ready(self, event: Ready) -> list[CellAction]:
        self._ready.add(event.task)
        return self._advance()

    def _take_submit(self, event: Submit) -> list[CellAction]:
        stuck = tuple(task for task in self.stuck if task in event.tasks)
        if stuck:
            return [Refuse(event.cell, stuck)]
        self._queue.append(event)
        return self._advance()

    def _take_answered(self, event: Answered) -> list[CellAction]:
        if self._busy.get(event.task) != event.cell:
            return []
        del self._busy[event.task]
        one = self._of(event.cell)
        if one is None:
            return self._advance()
        answers = one.freed if event.freed else one.raised if event.raised else one.finished
        answers.append(event.task)
        if not one.pending:
            return self._answered(one)
        soon = (event.raised and not one.alone) or one.arrived
        return self._hurry(one) if soon else self._look(one, PATIENCE_SECONDS)

    def _of(self, cell: int) -> _Current | None:
        """Return a cell if it is the one that runs."""
        one = self._current
        return one if one is not None and one.cell == cell else None

    def _look(self, one: _Current, seconds: float) -> list[CellAction]:
        """Look soon where the tasks are that have not answered."""
        if one.looking:
            return []
        one.looking = True
        return [Await(one.cell, seconds, "look")]

    def _hurry(self, one: _Current) -> list[CellAction]:
        """Free soon what has not answered: what waits for others now waits for ever."""
        if one.hurried or one.aborted:
            return []
        one.hurried = True
        return [Await(one.cell, SETTLE_SECONDS, "free")]

    def _take_elapsed(self, event: Elapsed) -> list[CellAction]:
        one = self._of(event.cell)
        if one is None:
            return []
        if one.recovery is not None:
            late = event.purpose == "recover"
            return self._recover(one, one.recovery.give_up()) if late else []
        if event.purpose == "free":
            return [*self._abort(one), *self._look(one, REPEAT_SECONDS)]
        one.looking = False
        return [Examine(event.cell)]

    def _abort(self, one: _Current) -> list[CellAction]:
        one.aborted, one.looks = True, 0
        if one.cell == PROGRAM_CELL:  # a program that has lost a task does not continue
            one.looks = STUBBORN_LOOKS
            return [Examine(one.cell)]
        return [Abort(task, one.cell) for task in one.pending]

    def _take_found(self, event: Found) -> list[CellAction]:
        one = self._of(event.cell)
        if one is None or one.recovery is not None:
            return []
        waiting = tuple(task for task in one.pending if task in event.inside)
        stuck = bool(waiting) and {*waiting} <= event.idle
        if not one.aborted:
            one.looks = one.looks + 1 if stuck else 0
            certain = one.looks >= CERTAIN_LOOKS
            return [*(self._abort(one) if certain else []), *self._look(one, REPEAT_SECONDS)]
        one.looks += 1
        if not one.bound.keys() >= {*waiting} and one.looks < STUBBORN_LOOKS:
            return self._look(one, REPEAT_SECONDS)
        return self._still(one, waiting, event.idle)

    def _still(
        self, one: _Current, waiting: tuple[str, ...], idle: frozenset[str]
    ) -> list[CellAction]:
        """Return what to tell of tasks that cannot be freed, and the end if all left wait."""
        told: list[CellAction] = []
        if waiting and not one.told and (one.raised or {*waiting} <= idle):
            one.told = True
            why = next(iter(one.bound.values()), None)
            told = [Waits(one.cell, waiting, tuple(one.raised), tuple(one.finished), why)]
        if one.raised and one.told and idle >= {*one.pending}:
            return [*told, *self._end("waits")]
        return [*told, *self._look(one, REPEAT_SECONDS)]

    def _take_bound(self, event: Bound) -> list[CellAction]:
        one = self._of(event.cell)
        if one is None or event.task not in one.pending:
            return []
        one.bound[event.task] = event.why
        return [Examine(one.cell)] if one.bound.keys() >= {*one.pending} else []

    def _take_arrived(self, event: Arrived) -> list[CellAction]:
        one = self._of(event.cell)
        if one is None or one.aborted:
            return [Abort(event.task, event.cell)]
        one.arrived.append(event.task)
        if {*one.arrived}.issuperset(self._partners):
            one.arrived.clear()
            return [Meet(task, one.cell) for task in self._partners]
        return self._hurry(one) if one.missing(self._partners) else []

    def _take_interrupt(self, event: Interrupt) -> list[CellAction]:
        one = self._of(event.cell)
        if one is not None:
            signals: list[CellAction] = [Signal(task, one.cell) for task in one.pending]
            one.interrupted = True
            return [*signals, *(self._hurry(one) if signals else [])]
        queued = [submit for submit in self._queue if submit.cell == event.cell]
        self._queue = deque(submit for submit in self._queue if submit.cell != event.cell)
        return [Done(submit.cell, "withdrawn", submit.tasks) for submit in queued]

    # The end of a cell.

    def _answered(self, one: _Current) -> list[CellAction]:
        """Return which tasks were freed, and what brings together tasks that have come apart."""
        raised = one.raised and not one.alone
        apart = raised or one.freed or one.interrupted or one.aborted
        if not apart or not self._can_recover(one):
            return self._end()
        self._epoch += 1
        one.recovery = Recovery(
            one.cell,
            self._partners,
            self._epoch,
            [*one.raised, *one.finished],
            aborted=one.aborted,
        )
        absent = tuple(task for task in self._partners if task not in one.tasks)
        freed, finished = (
            tuple(task for task in one.tasks if task in some) for some in (one.freed, one.finished)
        )
        told = [Freed(one.cell, freed, tuple(one.raised), finished, absent)] if freed else []
        timer = Await(one.cell, RECOVERY_SECONDS, "recover")
        return [*told, timer, *one.recovery.begin()]

    def _can_recover(self, one: _Current) -> bool:
        """Return whether some of the cell's tasks have partners, and all of these take orders."""
        partners = {*self._partners}
        together = len(partners) > 1 and not partners.isdisjoint(one.tasks)
        return (
            together
            and one.cell != PROGRAM_CELL
            and partners <= self._ready
            and partners.isdisjoint(self._busy)
        )

    def _take_rejoined(self, event: Rejoined | Compared | Aligned | Unable) -> list[CellAction]:
        one = self._of(event.cell)
        if one is not None and one.recovery is not None:
            return self._recover(one, one.recovery.handle(event))
        if self._busy.get(event.task) == event.cell:  # it was given up
            del self._busy[event.task]
        return self._advance()

    def _recover(self, one: _Current, actions: Sequence[CellAction]) -> list[CellAction]:
        """Continue a recovery; tasks that do not answer stay in the cell."""
        if one.recovery is None or not one.recovery.over:
            return list(actions)
        self._busy |= dict.fromkeys(one.recovery.left, one.cell)
        return [*actions, *self._end()]

    def _take_gone(self, event: Gone) -> list[CellAction]:
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
        self._current = _Current(submit.cell, submit.tasks, submit.alone)
        self._busy |= dict.fromkeys(submit.tasks, submit.cell)
        absent = {*self._partners}.difference(submit.tasks)
        partial = absent and not absent.issuperset(self._partners)
        timer = self._look(self._current, PATIENCE_SECONDS) if partial else []
        return [*(Tell(task, submit.cell) for task in submit.tasks), *timer]
