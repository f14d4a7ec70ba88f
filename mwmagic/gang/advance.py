"""How far the attempts of a gang come, and whether each comes further than those before it."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Advance", "TrainingPoint"]

NOTABLE_SECONDS = 1.0
"""How much longer an attempt must last to count as further: the time of a start varies."""


@dataclass(frozen=True, order=True)
class TrainingPoint:
    """A place in the training that a later attempt can be compared with.

    Parameters
    ----------
    epoch, step : int
        The epoch and the batches done in it; 0 where training has not begun.
    """

    epoch: int = 0
    step: int = 0


@dataclass
class Advance:
    """Compares each failed attempt with the one before it, and with the furthest of all.

    Attributes
    ----------
    short : int
        How many attempts in a row failed before they got as far as the one before them: by
        step where both are known, otherwise by time.
    stuck : int
        How many in a row made no new step, as far as is known.
    stepwise : bool
        Whether the latest comparison was by step.
    """

    short: int = 0
    stuck: int = 0
    stepwise: bool = field(default=False, init=False)
    _furthest: TrainingPoint | None = field(default=None, init=False)
    _last: tuple[TrainingPoint | None, float] | None = field(default=None, init=False)

    def failed(self, point: TrainingPoint | None, lasted: float) -> None:
        """Take an attempt that failed."""
        self.short = self.short + 1 if self._falls_short(point, lasted) else 0
        new = point is None or self._furthest is None or point > self._furthest
        self.stuck = 0 if new else self.stuck + 1
        self._keep(point, lasted)

    def saved(self, point: TrainingPoint | None, lasted: float) -> None:
        """Take an attempt that saved what it had done: the next one goes on from there."""
        self.short = self.stuck = 0
        self._keep(point, lasted)

    def _falls_short(self, point: TrainingPoint | None, lasted: float) -> bool:
        if self._last is None:
            return False
        before, seconds = self._last
        self.stepwise = point is not None and before is not None
        if point is not None and before is not None:
            return point < before
        return lasted < seconds + NOTABLE_SECONDS

    def _keep(self, point: TrainingPoint | None, lasted: float) -> None:
        self._last = (point, lasted)
        known = [one for one in (point, self._furthest) if one is not None]
        self._furthest = max(known, default=None)
