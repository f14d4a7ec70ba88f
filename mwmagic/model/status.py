"""The status of a run and its tasks: what a supervisor sends, and what a record keeps."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Literal

from .findings import (  # noqa: TC001 - read to know how a status is read back
    Cause,
    Finding,
    MemoryForecast,
    Remark,
    Slowdown,
    Stall,
)
from .machine import HostStatus  # noqa: TC001 - read to know how a status is read back
from .values import Measured, Stored

__all__ = [
    "STUCK_TRIES",
    "Delay",
    "GivenUp",
    "Importing",
    "LastRaised",
    "LiveStatus",
    "ParserFault",
    "PhaseName",
    "Question",
    "Reached",
    "RunState",
    "RunStatus",
    "Setback",
    "TaskState",
    "TaskStatus",
    "UpdateKind",
]


@dataclass(frozen=True)
class ParserFault(Stored):
    """An exception that a parser raised, as text with the line of code that raised it."""

    parser: str = ""
    error: str = ""


PhaseName = Literal["starting", "server", "waiting", "connected", "training"]
"""The furthest milestone of a task's start-up."""

UpdateKind = Literal["train", "bar", "print", "validation", "evaluate", "report"]
"""What shows a task's progress.

``train``: Keras inside an epoch. ``bar``: a Keras bar outside any epoch, of `evaluate`,
`predict`, or a `fit` with a single epoch, which look the same. ``print``: the user's own
output, or a tqdm bar. Reports use ``train`` too, ``validation`` for the end of an epoch's
validation, ``evaluate``, and ``report`` for the user's own.
"""


class RunState(str, Enum):
    """The state of a run: its gang's, or ``lost`` if its supervisor is gone.

    ``kept``: its programs are over, and their processes stay with their variables.
    """

    FORMING = "forming"
    RUNNING = "running"
    ENDING = "ending"
    BACKOFF = "backoff"
    FINISHED = "finished"
    FAILED = "failed"
    STOPPED = "stopped"
    LOST = "lost"
    KEPT = "kept"

    @property
    def final(self) -> bool:
        """Whether no process of the run is alive and nothing more can happen."""
        return self in _FINAL


_FINAL = (RunState.FINISHED, RunState.FAILED, RunState.STOPPED, RunState.LOST)


STUCK_TRIES = 3
"""How many attempts in a row may fail without a new step before the run ends."""


class GivenUp(str, Enum):
    """Why a run that failed is not restarted any more.

    ``restarts``: it was restarted as often as it may be. ``progress``: its last
    `STUCK_TRIES` attempts made no new step.
    """

    RESTARTS = "restarts"
    PROGRESS = "progress"


class TaskState(str, Enum):
    """The state of a task's process."""

    ABSENT = "absent"
    STARTING = "starting"
    RUNNING = "running"
    ENDED = "ended"

    @property
    def alive(self) -> bool:
        """Whether there is a process, or will be shortly."""
        return self in (TaskState.STARTING, TaskState.RUNNING)


@dataclass(frozen=True)
class Reached(Stored):
    """How far a task's training is, according to its latest report, which `kind` describes.

    `step` is how many batches are done in this epoch, of `steps`; `first` is the number of the
    first epoch.
    """

    kind: UpdateKind = "print"
    epoch: int | None = None
    epochs: int | None = None
    step: int | None = None
    steps: int | None = None
    metrics: dict[str, Measured] = field(default_factory=dict)
    seconds_per_step: float | None = None
    first: int = 1


@dataclass(frozen=True)
class Importing(Stored):
    """The import of a framework in a warm process, for which a task's start waits."""

    framework: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Question(Stored):
    """What a task's program asks, or a debugger that waits for a command."""

    prompt: str = ""
    debugger: bool = False


@dataclass(frozen=True)
class LastRaised(Stored):
    """What a task raised last, in a live cell or a program whose processes are kept.

    `message` is the first line of the exception's text; `cell` is the cell, or the program's file.
    """

    type: str = ""
    message: str = ""
    cell: str = ""
    line: int | None = None


@dataclass(frozen=True)
class LiveStatus(Stored):
    """What a task that takes live cells is doing."""

    cell: str = ""
    since: float | None = None
    """The name of the cell that it is in, such as ``In [7]``, and when it began it, in seconds of
    the wall clock; empty if it is idle."""
    waits: tuple[str, ...] = ()
    """The tasks that it waits for inside the framework, where that is known."""
    at: str | None = None
    """The user's line where it waits, as ``file:line in function``."""
    asks: bool = False
    """Whether it waits for a line that its user types."""


@dataclass(frozen=True)
class Rest(Stored):
    """The end, from byte `start`, of a log that could not be written.

    `path` is a file in memory with what follows, at the same offsets, as long as its agent lives;
    None if that is on another machine.
    """

    start: int = 0
    path: str | None = None


@dataclass(frozen=True)
class TaskStatus(Stored):
    """The status of a task in the latest attempt."""

    state: TaskState = TaskState.ABSENT
    address: str = ""
    """The address at which the other tasks expect its server."""
    pid: int | None = None
    warm: bool = False
    """Whether it was forked from a warm process."""
    importing: Importing | None = None
    """The import that its start waits for, if it waits for one."""
    phase: PhaseName | None = None
    """How far its start-up is."""
    waits: tuple[str, ...] = ()
    """The tasks that it waits for before it can train."""
    progress: Reached | None = None
    live: LiveStatus | None = None
    """What it does, if it takes live cells."""
    cpu: float | None = None
    memory: float | None = None
    """Seconds of CPU time that it and its descendants have used, and bytes of memory that they
    use."""
    log: str | None = None
    size: int = 0
    """The file with its output, and how many bytes of output there were."""
    rest: Rest | None = None
    """What that file lacks, if it could not be written to the end."""
    finding: Finding | None = None
    """How it ended, and why if that is known."""
    ours: bool = False
    """Whether mwmagic ended it, with the run or at the user's request."""
    asks: Question | None = None
    """What its program asks, and waits for."""
    raised: LastRaised | None = None
    """What it raised last and can be debugged."""

    @property
    def kept(self) -> bool:
        """Whether its program is over and its process stays."""
        return self.state is TaskState.RUNNING and self.finding is not None

    @property
    def code(self) -> int | None:
        """The exit code, if it exited."""
        return self.finding.code if self.finding else None

    @property
    def signal(self) -> int | None:
        """The signal that ended it, if one did."""
        return self.finding.signal if self.finding else None

    def lost(self) -> TaskStatus:
        """Return the status without its process, whose end was not observed."""
        if not self.state.alive:
            return self
        return replace(self, state=TaskState.ENDED, waits=(), asks=None, live=None)


@dataclass(frozen=True)
class Setback(Stored):
    """A failed attempt that was followed by another one, and why it failed."""

    attempt: int = 0
    cause: Cause | None = None
    reached: Reached | None = None
    """How far its training was, if that is known."""
    resumed: Reached | None = None
    """Where the training of the attempt after it began."""


@dataclass(frozen=True)
class Delay(Stored):
    """The wait before a restart: the attempt failed before it got as far as the one before it.

    `by` says how the attempts were compared: by time where their steps are not known.
    """

    seconds: float = 0.0
    by: Literal["step", "time"] = "time"


@dataclass(frozen=True)
class RunStatus(Stored):
    """The status of a run."""

    number: int = 0
    directory: str = ""
    """Where it is recorded."""
    script: str = ""
    state: RunState = RunState.LOST
    """``lost`` if a record does not have it."""
    attempt: int = 0
    """How many times the tasks were started."""
    restarts: int = 0
    limit: int = 0
    """How many times in a row it was restarted after a failure, and how often it may be."""
    delay: Delay | None = None
    """The wait before the next attempt, if there is one now."""
    placing: str | None = None
    """The scheduler's latest word, which may be empty, while the next attempt waits for
    machines."""
    given_up: GivenUp | None = None
    """Why a run that failed was not restarted any more, if it had been before."""
    unplaced: str | None = None
    """Why there were no machines for the next attempt of a run that failed."""
    started: float = 0.0
    ended: float | None = None
    """When the run began and was over, in seconds of the wall clock."""
    tasks: dict[str, TaskStatus] = field(default_factory=dict)
    """Each task, by name, in rank order."""
    hosts: tuple[HostStatus, ...] = ()
    """The machines that they are on, if they are on several."""
    cause: Cause | None = None
    """The first failure of a run that failed."""
    live: bool = False
    """Whether it is a session of cells."""
    trouble: str | None = None
    """Why its record is incomplete."""
    stall: Stall | None = None
    """Why it is making no progress."""
    slow: Slowdown | None = None
    """What makes its steps slow, as far as that is clear."""
    forecast: MemoryForecast | None = None
    """The task whose memory will not last."""
    setbacks: tuple[Setback, ...] = ()
    """Why earlier attempts failed."""
    remarks: tuple[Remark, ...] = ()
    """What did not go as intended, although the run continues or succeeded."""
    examined: int = 0
    """How many times the tasks' stacks were examined."""
    faults: tuple[ParserFault, ...] = ()
    """The first failure of each parser that failed; its results may be incomplete."""
    outcome: RunState | None = None
    """How its programs ended, ``finished`` or ``failed``, where it is ``kept``."""

    @property
    def asks(self) -> dict[str, Question]:
        """What programs ask, by task."""
        return {name: task.asks for name, task in self.tasks.items() if task.asks is not None}

    @property
    def over(self) -> bool:
        """Whether none of its processes is alive: it ended, or was lost with its supervisor."""
        return self.state.final

    @property
    def settled(self) -> bool:
        """Whether its programs are over; their processes may be kept."""
        return self.over or self.state is RunState.KEPT

    @property
    def result(self) -> RunState:
        """How its programs ended, once they are over."""
        return self.outcome if self.state is RunState.KEPT and self.outcome else self.state

    @property
    def reached(self) -> dict[str, int]:
        """The ``epoch`` and the ``step``, each of the first task that has reported it."""
        found: dict[str, int] = {}
        for one in (task.progress for task in self.tasks.values() if task.progress is not None):
            for name, value in (("epoch", one.epoch), ("step", one.step)):
                if value is not None:
                    found.setdefault(name, value)
        return found

    def lost(self) -> RunStatus:
        """Return the status once the supervisor is gone: lost, unless the run had ended."""
        if self.over:
            return self
        tasks = {name: task.lost() for name, task in self.tasks.items()}
        return replace(self, state=RunState.LOST, tasks=tasks, stall=None)
