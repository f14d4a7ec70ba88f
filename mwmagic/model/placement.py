"""How the tasks of a cluster are distributed over machines, and whether they are yet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from mwmagic.errors import ClusterError

from .text import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .cluster import Task

__all__ = ["Placing", "PlacingState", "spread"]

PlacingState = Literal["waiting", "placed", "failed"]
"""Whether a cluster has its machines: it waits for them, has them, or cannot get them."""


@dataclass(frozen=True)
class Placing:
    """Whether a cluster has its machines.

    Parameters
    ----------
    state : PlacingState
        Whether it has.
    said : str
        The scheduler's latest message.
    kind, error : str
        The class of the error that it cannot get them for, and its text.
    """

    state: PlacingState = "waiting"
    said: str = ""
    kind: str = ""
    error: str = ""


def spread(tasks: Sequence[Task], slots: Sequence[int | None]) -> list[tuple[Task, ...]]:
    """Give each machine its share of the tasks.

    Shares are contiguous, so that neighbouring ranks are on the same machine, and
    as equal as the machines' slots allow.
    """
    counts = [0] * len(slots)
    for placed in range(len(tasks)):
        free = [at for at, most in enumerate(slots) if most is None or counts[at] < most]
        if not free:
            raise ClusterError(
                f"there is no room for {counted(len(tasks), 'task')} on "
                f"{counted(len(slots), 'machine')} with {counted(placed, 'slot')} in all; use "
                "fewer tasks or more machines"
            )
        counts[min(free, key=lambda at: counts[at])] += 1
    left = iter(tasks)
    return [tuple(next(left) for _ in range(count)) for count in counts]
