"""How a gang reacts to a failure: by the task's role, its limits, and how far its attempts come."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from mwmagic.model.options import ClusterOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mwmagic.model.cluster import Task

__all__ = [
    "PORT_TRIES",
    "REPLACEMENT_TRIES",
    "AttemptProgress",
    "Policy",
    "Role",
    "TrainingPoint",
    "roles",
]


class Role(Enum):
    """What a task's exit means for the others."""

    PEER = "trains; its failure fails the run, and the run is done when all peers are"
    SERVER = "serves until the peers are done; its exit fails the run"
    REPLACEABLE = "serves; it is restarted without the others and rejoins"
    EVALUATOR = "its failure does not affect the others"


def roles(tasks: Sequence[Task]) -> dict[Task, Role]:
    """Return each task's role.

    With parameter servers, ``ParameterServerStrategy`` tolerates the loss of a
    worker but not of a ps; without them, every task is in every collective.
    """
    served = any(task.type == "ps" for task in tasks)
    table = {
        "chief": Role.PEER,
        "worker": Role.REPLACEABLE if served else Role.PEER,
        "ps": Role.SERVER,
        "evaluator": Role.EVALUATOR,
    }
    return {task: table[task.type] for task in tasks}


PORT_TRIES = 3
"""How many times in a row a gang moves to new ports before a taken port counts as a failure."""

REPLACEMENT_TRIES = 3
"""How many times in a row a replaceable task is restarted on its own, at least."""

_DOUBLINGS_LIMIT = 32
"""How many times a backoff doubles at most, so that the result fits a float."""


@dataclass(frozen=True)
class Policy:
    """How a gang behaves when a task fails."""

    restarts: int = ClusterOptions.restarts
    """How many times in a row the gang restarts after a failure. A replaceable task is restarted on
    its own as often, and at least `REPLACEMENT_TRIES` times, before its failure fails the gang."""
    grace: float = ClusterOptions.grace
    """Seconds between SIGTERM and SIGKILL when the run is stopped, and for parameter servers when
    training is done."""
    evaluation: float = 600.0
    """Time limit for the final evaluation, in seconds."""
    backoff: float = 0.5
    backoff_limit: float = 30.0
    """Seconds before a restart if the attempt failed before it got as far as the one before it;
    doubled for each further one in a row, up to the limit. Other restarts do not wait."""
    healthy: float = 300.0
    """Seconds after which an attempt, or a replaced task's process, counts as healthy, so that the
    count of restarts begins at 0 again."""
    settle: float = 0.5
    """Seconds to wait for the true cause when the first exit is only a consequence of another
    task's."""
    resume: float = 5.0
    """Seconds an attempt must have lasted for exit 42 to mean "resume me"; earlier it counts as a
    failure, or the run could restart forever."""
    saving: float = 30.0
    """Seconds that the other tasks have to save as well after the first exit 42."""
    stays: bool = False
    """Whether processes stay until they are stopped, so that every exit of a peer is a failure."""

    def delay(self, short: int) -> float:
        """Return the seconds before a restart, by how many attempts in a row fell short."""
        if not short:
            return 0.0
        doubled = self.backoff * 2.0 ** min(short - 1, _DOUBLINGS_LIMIT)
        return min(doubled, self.backoff_limit)


NOTABLE_SECONDS = 1.0
"""How much longer an attempt must last to count as further: the time of a start varies."""


@dataclass(frozen=True, order=True)
class TrainingPoint:
    """A place in the training that a later attempt can be compared with."""

    epoch: int = 0
    step: int = 0
    """The epoch and the batches done in it; 0 where training has not begun."""


@dataclass
class AttemptProgress:
    """Compares each failed attempt with the one before it, and with the furthest of all."""

    short: int = 0
    """How many attempts in a row failed before they got as far as the one before them: by step
    where both are known, otherwise by time."""
    stuck: int = 0
    """How many in a row made no new step, as far as is known."""
    stepwise: bool = field(default=False, init=False)
    """Whether the latest comparison was by step."""
    _furthest: TrainingPoint | None = field(default=None, init=False)
    _last: tuple[TrainingPoint | None, float] | None = field(default=None, init=False)

    def failed(self, point: TrainingPoint | None, lasted: float) -> None:
        """Take an attempt that failed."""
        self.short = self.short + 1 if self._falls_short(point, lasted) else 0
        new = point is None or self._furthest is None or point > self._furthest
        self.stuck = 0 if new else self.stuck + 1
        self._keep(point, lasted)

    def saved(self, point: TrainingPoint | None, lasted: float) -> None:
        """Take an attempt that saved what it had done: the next one continues from there."""
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
