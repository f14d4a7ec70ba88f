"""The input and output of a gang: the events and actions of `mwmagic.gang`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from mwmagic.model.variables import RESUME_CODE

if TYPE_CHECKING:
    from mwmagic.model.cluster import Task
    from mwmagic.model.status import GivenUp, RunState

    from .policy import TrainingPoint

__all__ = [
    "Action",
    "Backoff",
    "CancelTimer",
    "Deadline",
    "Due",
    "EndAll",
    "EndTask",
    "Ended",
    "Event",
    "Exited",
    "Failing",
    "FailureKind",
    "KillAgain",
    "Launched",
    "ProgramsOver",
    "Rebind",
    "Restart",
    "RestartTask",
    "SetTimer",
    "StartTask",
    "Stop",
    "Timer",
]


class FailureKind(Enum):
    """What kind of failure an exit is, according to the diagnosis."""

    PRIMARY = "the task's own"
    CONSEQUENCE = "another task's failure, seen from this one"
    PERMANENT = "another try would fail as well"
    PORT = "another process took the port"


# What a timer is for.


@dataclass(frozen=True)
class Deadline:
    """The remaining tasks must end now."""


@dataclass(frozen=True)
class Backoff:
    """The gang restarts."""


@dataclass(frozen=True)
class RestartTask:
    """A replaceable task restarts, without the others."""

    task: Task


@dataclass(frozen=True)
class KillAgain:
    """The request that a task end is repeated."""

    task: Task


Due = Deadline | Backoff | RestartTask | KillAgain


# Events. Each has the monotonic time at which it happened, in seconds of the
# clock that the gang was created with.


@dataclass(frozen=True)
class Launched:
    """A task is launched; a second launch replaces it while the gang is forming."""

    task: Task
    time: float = 0.0


@dataclass(frozen=True)
class Exited:
    """A task's process is gone, with everything it had started.

    There is one such event for each process that `StartTask` asked for, even if it
    could not be started or its machine was lost. `reached` is how far its training is known to
    have come; None if that is unknown.
    """

    task: Task
    attempt: int
    code: int | None
    failure: FailureKind = FailureKind.PRIMARY
    time: float = 0.0
    reached: TrainingPoint | None = None

    @property
    def succeeded(self) -> bool:
        """Whether it succeeded."""
        return self.code == 0

    @property
    def saved(self) -> bool:
        """Whether it saved its state and asks to be resumed."""
        return self.code == RESUME_CODE


@dataclass(frozen=True)
class Failing(Exited):
    """A task's program failed; its process is still there, and ends by itself. `Exited` follows."""


@dataclass(frozen=True)
class Stop:
    """The run is stopped, or one task of it."""

    task: Task | None = None
    grace: float | None = None
    time: float = 0.0


@dataclass(frozen=True)
class ProgramsOver:
    """The programs are over, and their processes stay; one of them may have ``failed``."""

    failed: bool
    time: float = 0.0


@dataclass(frozen=True)
class Restart:
    """The gang is restarted on request, which does not count as a failure."""

    time: float = 0.0


@dataclass(frozen=True)
class Timer:
    """A timer that `SetTimer` set went off."""

    due: Due
    time: float = 0.0


Event = Launched | Exited | Failing | Stop | ProgramsOver | Restart | Timer


# Actions.


@dataclass(frozen=True)
class StartTask:
    """Start a task's process."""

    task: Task
    attempt: int


@dataclass(frozen=True)
class EndTask:
    """End a task's process and its descendants: SIGTERM, `grace` seconds, SIGKILL."""

    task: Task
    attempt: int
    grace: float


@dataclass(frozen=True)
class EndAll:
    """End every process of an attempt: SIGTERM, `grace` seconds, SIGKILL."""

    attempt: int
    grace: float


@dataclass(frozen=True)
class Rebind:
    """Hold new ports before the next start."""


@dataclass(frozen=True)
class SetTimer:
    """Send `Timer(due)` after some seconds; setting the same timer again replaces it."""

    due: Due
    seconds: float


@dataclass(frozen=True)
class CancelTimer:
    """Cancel a timer."""

    due: Due


@dataclass(frozen=True)
class Ended:
    """The run reached its final state; nothing of it is alive.

    `given_up` says why a failure that might not repeat itself was not followed by a restart.
    """

    state: RunState
    given_up: GivenUp | None = None


Action = StartTask | EndTask | EndAll | Rebind | SetTimer | CancelTimer | Ended
