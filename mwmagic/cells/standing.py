"""Where each task's training stands, and whose state all can go on from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Digest", "Standing", "differing", "leader"]


@dataclass(frozen=True)
class Standing:
    """How far a task's training has come, by its own counters.

    Parameters
    ----------
    begun, done : int
        How many updates of weights have begun, and how many of these are whole. They are 0 where
        nothing counts updates, as in a loop without a Keras optimizer.
    before : int
        How many were whole when the latest step began.
    entered, left : int
        How many steps have begun, and how many have ended.
    usual : int
        How many updates the latest step made that has ended.
    """

    begun: int = 0
    done: int = 0
    before: int = 0
    entered: int = 0
    left: int = 0
    usual: int = 0

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
    """What a task's variables hold.

    Parameters
    ----------
    shared : dict of str to str
        Stands for the values of those that must be equal on all tasks, by name.
    means : dict of str to str
        Stands for the values of those that are means over the tasks once a step has ended.
    """

    shared: Mapping[str, str]
    means: Mapping[str, str]


def leader(standings: Mapping[str, Standing], preferred: Sequence[str]) -> str | None:
    """Return the task whose state all can go on from; None if no task's is whole.

    It is the one with the most whole updates, since each of them holds the part of every task.
    """
    whole = [task for task, one in standings.items() if one.whole]

    def rank(task: str) -> tuple[int, bool, int]:
        one = standings[task]
        place = preferred.index(task) if task in preferred else len(preferred)
        return one.done, one.between_steps, -place

    return max(whole, key=rank, default=None)


def differing(digests: Sequence[Mapping[str, str]]) -> tuple[str, ...]:
    """Return what all have, and not all alike; one may have what is no longer used elsewhere."""
    first = digests[0]
    return tuple(
        name
        for name, value in first.items()
        if all(name in one for one in digests) and any(one[name] != value for one in digests)
    )
