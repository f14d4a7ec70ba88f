"""How far training came, where that can be compared between the attempts of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mwmagic.gang import TrainingPoint

if TYPE_CHECKING:
    from mwmagic.logs.progress import Update

__all__ = ["Comparison", "Furthest"]

_TRAINING = ("train", "print", "report")
"""The kinds of progress that say where training is: a bar may be one of `evaluate`."""


class Furthest:
    """The furthest place that one process showed.

    Attributes
    ----------
    point : TrainingPoint
        The place; the start where it showed none.
    stepwise : bool
        Whether it showed steps: two attempts may differ within an epoch.
    erratic : bool
        Whether it went back, as several trainings in one program do: what is further
        cannot be said then.
    """

    def __init__(self) -> None:
        self.point = TrainingPoint()
        self.stepwise = self.erratic = False

    def take(self, latest: Update) -> None:
        """Take where the process is now."""
        if latest.kind not in _TRAINING or (latest.epoch is None and latest.step is None):
            return
        point = TrainingPoint(latest.epoch or 0, latest.step or 0)
        self.erratic |= point < self.point
        self.stepwise |= latest.step is not None
        self.point = max(self.point, point)


class Comparison:
    """Says which places of a run's processes can be compared."""

    def __init__(self) -> None:
        self._stepwise = self._erratic = False

    def of(self, furthest: Furthest) -> TrainingPoint | None:
        """Return the place that a process came to; None if it is unknown.

        A process that shows none has not begun to train, in a run that showed steps before.
        """
        self._stepwise |= furthest.stepwise
        self._erratic |= furthest.erratic
        return furthest.point if self._stepwise and not self._erratic else None
