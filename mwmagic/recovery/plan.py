"""Where each task's training stands, and how tasks come together again after an error.

It takes what tasks answer, and returns what they are to do next. ``cell`` is the number of
whatever the tasks ran, such as a live cell.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "Align",
    "Aligned",
    "Compare",
    "Compared",
    "Digest",
    "Recovered",
    "Recovery",
    "RecoveryOutcome",
    "RecoveryStep",
    "Rejoin",
    "Rejoined",
    "Standing",
    "Unable",
]


@dataclass(frozen=True)
class Standing:
    """How far a task's training has come, by its own counters."""

    begun: int = 0
    done: int = 0
    """How many updates of weights have begun, and how many of these are whole. They are 0 where
    nothing counts updates, as in a loop without a Keras optimizer."""
    before: int = 0
    """How many were whole when the latest step began."""
    entered: int = 0
    left: int = 0
    """How many steps have begun, and how many have ended."""
    usual: int = 0
    """How many updates the latest step made that has ended."""

    @property
    def whole(self) -> bool:
        """Whether no update was cut short."""
        return self.begun == self.done

    @property
    def between_steps(self) -> bool:
        """Whether the task is in no step."""
        return self.entered == self.left

    @property
    def cut(self) -> bool:
        """Whether a step that makes several updates has made only some."""
        return not self.between_steps and 0 < self.done - self.before < self.usual


@dataclass(frozen=True)
class Digest:
    """What a task's variables hold."""

    shared: Mapping[str, str]
    """Stands for the values of those that must be equal on all tasks, by name."""
    means: Mapping[str, str]
    """Stands for the values of those that are means over the tasks once a step has ended."""


# What tasks answer, and what they are to do.


@dataclass(frozen=True)
class Rejoined:
    """A task's collectives work again; without a standing it has none."""

    task: str
    cell: int
    standing: Standing | None


@dataclass(frozen=True)
class Compared:
    """What a task's variables hold."""

    task: str
    cell: int
    digest: Digest


@dataclass(frozen=True)
class Aligned:
    """A task has the state that all continue from."""

    task: str
    cell: int


@dataclass(frozen=True)
class Unable:
    """A task could not carry out an order of a recovery."""

    task: str
    cell: int


@dataclass(frozen=True)
class Rejoin:
    """Make a task's collectives work again, with the keys of an epoch."""

    task: str
    cell: int
    epoch: int


@dataclass(frozen=True)
class Compare:
    """Undo what a task has done since a number of whole updates, and digest its variables."""

    task: str
    cell: int
    done: int


@dataclass(frozen=True)
class Align:
    """Give a task the values of another for some variables, and all tasks' mean for others."""

    task: str
    cell: int
    root: str
    """The task whose values all get."""
    done: int
    """How many whole updates the state of all holds."""
    names: tuple[str, ...]
    averaged: tuple[str, ...]
    """The variables that get the values of `root`, and those that get the mean of all tasks'."""


RecoveryOutcome = Literal["aligned", "torn", "failed"]
"""What became of the state of training.

All tasks have the same (``aligned``); no task's update was whole (``torn``); or collectives do
not work again (``failed``).
"""


@dataclass(frozen=True)
class Recovered:
    """Tell what a recovery came to."""

    cell: int
    outcome: RecoveryOutcome
    root: str | None = None
    """The task whose state all have."""
    differed: int = 0
    variables: int = 0
    """How many variables differed, and how many there are."""
    counted: bool = True
    """Whether updates were counted, so that the state is known to be that of whole ones."""
    cut: bool = False
    """Whether some of the updates of the last step were made, and not the others."""


RecoveryStep = Rejoin | Compare | Align | Recovered
"""What a recovery has done next."""


def _leader(standings: Mapping[str, Standing], preferred: Sequence[str]) -> str | None:
    """Return the task whose state all can continue from; None if no task's is whole.

    It is the one with the most whole updates, since each of them holds the part of every task.
    """
    whole = [task for task, one in standings.items() if one.whole]

    def rank(task: str) -> tuple[int, bool, int]:
        one = standings[task]
        place = preferred.index(task) if task in preferred else len(preferred)
        return one.done, one.between_steps, -place

    return max(whole, key=rank, default=None)


def _differing(digests: Sequence[Mapping[str, str]]) -> tuple[str, ...]:
    """Return what all have, and not all alike; one may have what is no longer used elsewhere."""
    first = digests[0]
    return tuple(
        name
        for name, value in first.items()
        if all(name in one for one in digests) and any(one[name] != value for one in digests)
    )


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

    def begin(self) -> list[RecoveryStep]:
        """Return the first orders."""
        return [Rejoin(task, self._cell, self._epoch) for task in self._tasks]

    def give_up(self) -> list[RecoveryStep]:
        """End it, since some task does not answer or could not carry out its order."""
        return self._end("failed")

    def handle(self, event: Rejoined | Compared | Aligned | Unable) -> list[RecoveryStep]:
        """Take a task's answer, and return what is next."""
        self._left.discard(event.task)
        match event:
            case Rejoined():
                if event.standing is not None:
                    self._standings[event.task] = event.standing
                return [] if self._left else self._compare()
            case Compared():
                self._digests[event.task] = event.digest
                return [] if self._left else self._align()
            case Aligned():
                return [] if self._left else self._end("aligned")
            case Unable():
                return self.give_up()

    def _compare(self) -> list[RecoveryStep]:
        """Compare what may differ: nothing does where all stand alike and none was freed."""
        self._tasks = tuple(task for task in self._tasks if task in self._standings)
        stand = set(self._standings.values())
        alike = len(stand) == 1 and all(one.whole and one.between_steps for one in stand)
        if not stand or (alike and not self._aborted):
            self.over = True
            return []
        self._root = _leader(self._standings, self._preferred)
        if self._root is None:
            return self._end("torn")
        self._left = set(self._tasks)
        done = self._standings[self._root].done
        return [Compare(task, self._cell, done) for task in self._tasks]

    def _align(self) -> list[RecoveryStep]:
        digests, root = list(self._digests.values()), self._root or ""
        shared = _differing([one.shared for one in digests])
        means = _differing([one.means for one in digests])
        self._differed = len(shared) + len(means)
        self._left = set(self._tasks)
        stand = self._standings[root]
        if stand.between_steps:
            shared, means = shared + means, ()
        three = stand.done, shared, means
        return [Align(task, self._cell, root, *three) for task in self._tasks]

    def _end(self, outcome: RecoveryOutcome) -> list[RecoveryStep]:
        self.over = True
        digest = next(iter(self._digests.values()), None)
        count = 0 if digest is None else len(digest.shared) + len(digest.means)
        root = self._standings.get(self._root or "")
        counted = any(one.begun for one in self._standings.values())
        cut = root is not None and root.cut
        return [Recovered(self._cell, outcome, self._root, self._differed, count, counted, cut)]
