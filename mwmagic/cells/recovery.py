"""Brings tasks back together after some of them raised, were interrupted or were freed."""

from __future__ import annotations

from functools import singledispatchmethod
from typing import TYPE_CHECKING

from .events import (
    Align,
    Aligned,
    CellAction,
    Compare,
    Compared,
    Recovered,
    RecoveryOutcome,
    Rejoin,
    Rejoined,
    Unable,
)
from .standing import differing, leader

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .standing import Digest, Standing

__all__ = ["Recovery"]


class Recovery:
    """Has tasks rejoin their collectives, compare their variables and align what differs."""

    def __init__(
        self,
        cell: int,
        tasks: Sequence[str],
        epoch: int,
        preferred: Sequence[str],
        *,
        aborted: bool,
    ) -> None:
        self.over = False
        self._cell = cell
        self._tasks = tuple(tasks)
        self._epoch = epoch
        self._preferred = preferred
        self._aborted = aborted
        self._left = set(tasks)
        self._standings: dict[str, Standing] = {}
        self._digests: dict[str, Digest] = {}
        self._root: str | None = None
        self._differed = 0

    @property
    def left(self) -> tuple[str, ...]:
        """The tasks that have not carried out the latest order."""
        return tuple(task for task in self._tasks if task in self._left)

    def begin(self) -> list[CellAction]:
        """Return the first orders."""
        return [Rejoin(task, self._cell, self._epoch) for task in self._tasks]

    def give_up(self) -> list[CellAction]:
        """End it, since some task does not answer or could not carry out its order."""
        return self._end("failed")

    @singledispatchmethod
    def handle(self, event: Rejoined | Compared | Aligned | Unable) -> list[CellAction]:
        """Take a task's answer, and return what is next."""
        raise TypeError(event)

    @handle.register
    def _(self, event: Rejoined) -> list[CellAction]:
        self._left.discard(event.task)
        if event.standing is not None:
            self._standings[event.task] = event.standing
        return [] if self._left else self._compare()

    @handle.register
    def _(self, event: Compared) -> list[CellAction]:
        self._left.discard(event.task)
        self._digests[event.task] = event.digest
        return [] if self._left else self._align()

    @handle.register
    def _(self, event: Aligned) -> list[CellAction]:
        self._left.discard(event.task)
        return [] if self._left else self._end("aligned")

    @handle.register
    def _(self, event: Unable) -> list[CellAction]:
        self._left.discard(event.task)
        return self.give_up()

    def _compare(self) -> list[CellAction]:
        """Compare what may differ: nothing does where all stand alike and none was freed."""
        self._tasks = tuple(task for task in self._tasks if task in self._standings)
        stand = set(self._standings.values())
        alike = len(stand) == 1 and all(one.whole and one.between_steps for one in stand)
        if not stand or (alike and not self._aborted):
            self.over = True
            return []
        self._root = leader(self._standings, self._preferred)
        if self._root is None:
            return self._end("torn")
        self._left = set(self._tasks)
        done = self._standings[self._root].done
        return [Compare(task, self._cell, done) for task in self._tasks]

    def _align(self) -> list[CellAction]:
        digests, root = list(self._digests.values()), self._root or ""
        shared = differing([one.shared for one in digests])
        means = differing([one.means for one in digests])
        self._differed = len(shared) + len(means)
        self._left = set(self._tasks)
        stand = self._standings[root]
        if stand.between_steps:
            shared, means = shared + means, ()
        three = stand.done, shared, means
        return [Align(task, self._cell, root, *three) for task in self._tasks]

    def _end(self, outcome: RecoveryOutcome) -> list[CellAction]:
        self.over = True
        digest = next(iter(self._digests.values()), None)
        count = 0 if digest is None else len(digest.shared) + len(digest.means)
        root = self._standings.get(self._root or "")
        counted = any(one.begun for one in self._standings.values())
        cut = root is not None and root.cut
        return [Recovered(self._cell, outcome, self._root, self._differed, count, counted, cut)]
