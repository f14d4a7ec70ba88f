"""Findings: what was observed of tasks, where they are, and why a run failed, stalls or is slow.

All are ids with fields; `mwmagic.words` turns them into sentences.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any, Literal

from .values import Stored

__all__ = [
    "Cause",
    "Examination",
    "Finding",
    "Location",
    "MemoryForecast",
    "Origin",
    "Peer",
    "Position",
    "Remark",
    "SlowCause",
    "Slowdown",
    "Stall",
    "Symptom",
    "Whereabouts",
    "Window",
]


class Whereabouts(str, Enum):
    """What a task is doing."""

    IN_USER_CODE = "in-user-code"
    IN_FRAMEWORK = "in-framework"
    NO_USER_CODE = "no-user-code"
    NO_ANSWER = "no-answer"
    NOT_BEGUN = "not-begun"
    NO_HANDLER = "no-handler"
    STOPPED = "stopped"


@dataclass(frozen=True)
class Position(Stored):
    """Where a task is; `at` is the innermost line of the user's own code, as in `Finding`."""

    task: str = ""
    whereabouts: Whereabouts = Whereabouts.NO_ANSWER
    at: str | None = None


@dataclass(frozen=True)
class Examination(Stored):
    """Where the tasks of a run are.

    `positions` begins with the tasks that hold up the others; `texts` has the stacks of all threads
    by task, as ``faulthandler`` writes them.
    """

    positions: tuple[Position, ...] = ()
    texts: dict[str, str] = field(default_factory=dict)


class Symptom(str, Enum):
    """What was observed of a task."""

    # How its process ended.
    UNKNOWN = "unknown"
    NOT_STARTED = "not-started"
    AGENT_LOST = "agent-lost"
    HOST_LOST = "host-lost"
    EXITED = "exited"
    LACKS_NAME = "lacks-name"
    KILLED = "killed"
    OUT_OF_MEMORY = "out-of-memory"
    STALLED = "stalled"
    # How it made the other tasks fail without failing itself.
    SILENT = "silent"
    CUT_OFF = "cut-off"
    LOST_EACH_OTHER = "lost-each-other"
    STOPPED_BY_SIGNAL = "stopped-by-signal"
    FINISHED_EARLY = "finished-early"
    FINISHED_DURING_SAVE = "finished-during-save"
    # What the user should know although the run continues.
    ALONE = "alone"
    OUTSIDE_SCOPE = "outside-scope"
    ELSEWHERE = "elsewhere"
    LOGGED = "logged"
    JOB_ENDS = "job-ends"
    LOG_UNWRITTEN = "log-unwritten"
    LOG_CUT = "log-cut"
    HOST_UNUSED = "host-unused"
    IMPORTED_LONG = "imported-long"
    LEFT_OUT = "left-out"
    COLD_VARIABLE = "cold-variable"
    COLD_UNKNOWN = "cold-unknown"
    COLD_INSTALLED = "cold-installed"
    COLD_FILE = "cold-file"
    COLD_MODULE = "cold-module"
    COLD_STOPPED = "cold-stopped"
    COLD_FAILED = "cold-failed"
    # What keeps a run from making progress.
    WAITS_FOR_MISSING_TASK = "waits-for-missing-task"
    TAKES_ANOTHERS_ADDRESS = "takes-anothers-address"
    SECOND_PROCESS = "second-process"
    BEFORE_STRATEGY = "before-strategy"
    UNREACHABLE = "unreachable"
    HOSTS_APART = "hosts-apart"
    WAITS_IN_SAVE = "waits-in-save"
    KEEPS_OTHERS_WAITING = "keeps-others-waiting"
    DIFFERENT_PLACES = "different-places"
    DOES_NOT_END = "does-not-end"


@dataclass(frozen=True)
class Finding(Stored):
    """A symptom of a task, with the other task, address, machine or job that is involved."""

    symptom: Symptom = Symptom.UNKNOWN
    task: str = ""
    peer: str | None = None
    at: str | None = None
    """The line of the user's code, as ``file:line in function``."""
    address: str | None = None
    host: str | None = None
    code: int | None = None
    signal: int | None = None
    seconds: float | None = None
    """How long it has lasted."""
    requested: bool = False
    """Whether the signal was sent at the user's request."""
    detail: str | None = None
    """A message about it from the system or an agent, for people to read."""
    errno: int | None = None
    """The system's number for that, if it is an error of the system's."""
    positions: tuple[Position, ...] = ()
    tasks: tuple[str, ...] = ()
    """The tasks that were lost with the machine, this one among them."""
    job: str | None = None
    until: float | None = None
    """When the job ends, in seconds of the wall clock."""

    def matches(self, other: Finding) -> bool:
        """Return whether another finding has the same symptom and every field that is set here."""
        return self.symptom is other.symptom and all(
            getattr(other, name) == value for name, value in self.given.items()
        )

    @property
    def given(self) -> dict[str, Any]:
        """The fields that are set, without the symptom."""
        values = {field.name: getattr(self, field.name) for field in fields(self)[1:]}
        return {name: value for name, value in values.items() if value not in (None, "", False, ())}


@dataclass(frozen=True)
class Location(Stored):
    """A line of code.

    `line` counts from 1, and is 0 if it is not known; `function` is ``<module>`` outside of any;
    `source` is the line without its indent; `cell` names the notebook's cell and the line in it, if
    the file is a cell's.
    """

    file: str = ""
    line: int = 0
    function: str = ""
    source: str = ""
    cell: str | None = None


@dataclass(frozen=True)
class Origin(Stored):
    """An exception from which another one came.

    `exception` is ``Type: message``, several lines at most. `handled` says that the other one was
    raised while this one was handled, rather than ``from`` it.
    """

    exception: str = ""
    where: Location | None = None
    handled: bool = False


@dataclass(frozen=True)
class Peer(Stored):
    """Where another task was when the first one failed; `where` is None if it had finished."""

    task: str = ""
    where: Location | None = None


@dataclass(frozen=True)
class Cause(Stored):
    """The first failure of a run."""

    finding: Finding = field(default_factory=Finding)
    exception: str | None = None
    """The uncaught exception, as ``Type: message``, several lines at most."""
    where: Location | None = None
    """The innermost line of the user's own code. If the task finished too early, the line that its
    peer had reached."""
    known: str | None = None
    gaps: tuple[str, ...] = ()
    """The known failure that it matches, and what stood in the gaps of that one's sign."""
    consequences: tuple[str, ...] = ()
    """The tasks whose failure followed from this one."""
    origins: tuple[Origin, ...] = ()
    """What the exception came from, the nearest first."""
    log: tuple[str, ...] = field(default=(), repr=False)
    """The last lines of the task's log, without the framework's notices."""
    others: tuple[Peer, ...] = ()
    """Where other tasks were, if it belongs to the failure."""
    options: dict[str, str] = field(default_factory=dict, repr=False)
    """The run's options on which the remedy depends."""

    @property
    def task(self) -> str:
        """The task that failed first."""
        return self.finding.task

    @property
    def symptom(self) -> Symptom:
        """How it failed."""
        return self.finding.symptom


@dataclass(frozen=True)
class Remark(Stored):
    """Something about tasks that the user should know.

    `known` is the known failure that it matches, and `gaps` has what stood in the gaps of its sign.
    """

    known: str = ""
    tasks: tuple[str, ...] = ()
    finding: Finding = field(default_factory=Finding)
    gaps: tuple[str, ...] = ()


@dataclass(frozen=True)
class Stall(Stored):
    """A run whose tasks made no progress for `seconds` when they were examined.

    `guilty` is the task that holds up the others; `positions` begins with such tasks.
    """

    seconds: float = 0.0
    guilty: str | None = None
    positions: tuple[Position, ...] = ()
    why: Remark | None = None


# Where the time of training steps goes, and which task holds up the others.


@dataclass(frozen=True)
class Window(Stored):
    """The means over some steps in a row of one task, in seconds of each step.

    `first` is the step before the first of them, counted over a whole `fit`.
    """

    first: int = 0
    steps: int = 1
    wall: float = 0.0
    input: float = 0.0
    """The wait for the next batch."""
    callbacks: float = 0.0
    """Without the wait for other tasks; with what the main thread slept or read outside them."""
    cpu: float = 0.0
    """CPU time of all threads."""
    faults: float = 0.0
    """Pages that had to be read from a disk."""
    waits: float | None = None
    """The time in which it waited for other tasks; None if that is not known."""
    queued: float = 0.0
    """The time in which its threads wanted a CPU and none of them had one."""
    held: float = 0.0
    """The time in which it was not allowed to run at all."""
    throttled: float = 0.0
    """As `held`, by the account of its control group."""
    own: float = 0.0
    """The time in which the user's code slept or read something, outside input and callbacks."""
    collected: float = 0.0
    """Python's garbage collection."""
    traced: float = 0.0
    """TensorFlow's tracing of functions."""
    sending: float = 0.0
    sent: float = 0.0
    """How long data was underway to `peer`, and the bytes of it."""
    peer: str | None = None
    """The address of the host to which sending took longest."""
    at_input: str | None = None
    at_main: str | None = None
    at_own: str | None = None
    """The user's lines, as ``file:line in function``, that the input pipeline, the callbacks and
    `own` were seen in most often."""


class SlowCause(str, Enum):
    """Why steps take longer than they need to."""

    INPUT_WAITS = "input-waits"
    INPUT_COMPUTES = "input-computes"
    CALLBACKS = "callbacks"
    CODE_WAITS = "code-waits"
    GARBAGE = "garbage"
    TRACING = "tracing"
    MORE_WORK = "more-work"
    NEIGHBOUR = "neighbour"
    THROTTLED = "throttled"
    STOPPED = "stopped"
    PAGING = "paging"
    COLLECTIVE = "collective"
    LINK = "link"
    UNCLEAR = "unclear"


@dataclass(frozen=True)
class Slowdown(Stored):
    """What makes training slower than it needs to be.

    `task` is the task that the others wait for; None if all of them lose the same time. `when` says
    whether that is so in every step, only in some, or in turn for each task.
    """

    cause: SlowCause = SlowCause.INPUT_WAITS
    task: str | None = None
    when: Literal["always", "sometimes", "in-turn"] = "always"
    share: float = 0.0
    """The part of a step that is lost, as far as it is known."""
    step: float = 0.0
    """Seconds that a step takes."""
    at: str | None = None
    """The line of the user's code, as in `Window`."""
    times: float | None = None
    """How many times as much CPU time as the others a task uses that has more to compute."""
    sent: float = 0.0
    rate: float = 0.0
    peer: str | None = None
    """How many bytes each step sends over the link that takes longest, how many of them it carries
    in a second, and the address of its other end."""

    @property
    def without(self) -> float:
        """Seconds that a step would take without it."""
        return self.step * (1 - self.share)


@dataclass(frozen=True)
class MemoryForecast(Stored):
    """A task whose memory grows by so many bytes in each epoch, and how many epochs fit yet."""

    task: str = ""
    per_epoch: float = 0.0
    epochs: int = 0
