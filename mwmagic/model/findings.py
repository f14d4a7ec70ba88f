"""Findings: what was observed of tasks, where they are, and why a run failed or stalls.

All are ids with fields; `mwmagic.words` turns them into sentences.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any

from .stored import Stored

__all__ = [
    "Cause",
    "Examination",
    "Finding",
    "Location",
    "Origin",
    "Peer",
    "Position",
    "Remark",
    "Stall",
    "Symptom",
    "Whereabouts",
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
    """Where a task is.

    Parameters
    ----------
    task : str
        The task's name.
    whereabouts : Whereabouts
        What it is doing.
    at : str or None
        The innermost line of the user's own code, as ``file:line in function``.
    """

    task: str = ""
    whereabouts: Whereabouts = Whereabouts.NO_ANSWER
    at: str | None = None


@dataclass(frozen=True)
class Examination(Stored):
    """Where the tasks of a run are.

    Parameters
    ----------
    positions : tuple of Position
        Where each task is, the tasks that hold up the others first.
    texts : dict of str to str
        The stacks of all threads, as ``faulthandler`` writes them, by task.
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
    STOPPED_BY_SIGNAL = "stopped-by-signal"
    FINISHED_EARLY = "finished-early"
    FINISHED_DURING_SAVE = "finished-during-save"
    # What the user should know although the run continues.
    ALONE = "alone"
    ELSEWHERE = "elsewhere"
    LOGGED = "logged"
    JOB_ENDS = "job-ends"
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
    WAITS_IN_SAVE = "waits-in-save"
    KEEPS_OTHERS_WAITING = "keeps-others-waiting"
    DIFFERENT_PLACES = "different-places"


@dataclass(frozen=True)
class Finding(Stored):
    """A symptom with its details.

    Parameters
    ----------
    symptom : Symptom
        What was observed.
    task : str
        The task in which it was observed.
    peer : str or None
        The other task involved.
    at : str or None
        The line of the user's code, as ``file:line in function``.
    address : str or None
        The address involved.
    host : str or None
        The machine involved.
    code, signal : int or None
        How the process ended, as reported by the system.
    seconds : float or None
        How long it has lasted.
    requested : bool
        Whether the signal was sent at the user's request.
    detail : str or None
        A message about it from the system or an agent, for people to read.
    errno : int or None
        The system's number for that, if it is an error of the system's.
    positions : tuple of Position
        Where each of the tasks involved is.
    tasks : tuple of str
        The tasks that were lost with the machine, this one among them.
    job : str or None
        The scheduler's job involved.
    until : float or None
        When it ends, in seconds of the wall clock.
    """

    symptom: Symptom = Symptom.UNKNOWN
    task: str = ""
    peer: str | None = None
    at: str | None = None
    address: str | None = None
    host: str | None = None
    code: int | None = None
    signal: int | None = None
    seconds: float | None = None
    requested: bool = False
    detail: str | None = None
    errno: int | None = None
    positions: tuple[Position, ...] = ()
    tasks: tuple[str, ...] = ()
    job: str | None = None
    until: float | None = None

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

    Parameters
    ----------
    file : str
        The file, as printed.
    line : int
        The line number, from 1; 0 if it is not known.
    function : str
        The function, ``<module>`` outside of any.
    source : str
        The line itself, without its indent.
    cell : str or None
        The notebook's cell and the line in it, if the file is a cell's.
    """

    file: str = ""
    line: int = 0
    function: str = ""
    source: str = ""
    cell: str | None = None


@dataclass(frozen=True)
class Origin(Stored):
    """An exception from which another one came.

    Parameters
    ----------
    exception : str
        ``Type: message``, several lines at most.
    where : Location or None
        The innermost line of the user's own code, as in `Cause`.
    handled : bool
        Whether the other one was raised while this one was handled, rather than ``from`` it.
    """

    exception: str = ""
    where: Location | None = None
    handled: bool = False


@dataclass(frozen=True)
class Peer(Stored):
    """Where another task was when the first one failed.

    Parameters
    ----------
    task : str
        Its name.
    where : Location or None
        The innermost line of the user's own code; None if it had finished.
    """

    task: str = ""
    where: Location | None = None


@dataclass(frozen=True)
class Cause(Stored):
    """The first failure of a run.

    Parameters
    ----------
    finding : Finding
        The task that failed first, and how.
    exception : str or None
        The uncaught exception, as ``Type: message``, several lines at most.
    where : Location or None
        The innermost line of the user's own code. If the task finished too early, the
        line that its peer had reached.
    known : str or None
        The name of the known failure that it matches.
    gaps : tuple of str
        What stood in the gaps of the known failure's sign.
    consequences : tuple of str
        The tasks whose failure followed from this one.
    origins : tuple of Origin
        What the exception came from, the nearest first.
    log : tuple of str
        The last lines of the task's log, without the framework's notices.
    others : tuple of Peer
        Where other tasks were, if it belongs to the failure.
    options : dict of str to str
        The run's options on which the remedy depends.
    """

    finding: Finding = field(default_factory=Finding)
    exception: str | None = None
    where: Location | None = None
    known: str | None = None
    gaps: tuple[str, ...] = ()
    consequences: tuple[str, ...] = ()
    origins: tuple[Origin, ...] = ()
    log: tuple[str, ...] = field(default=(), repr=False)
    others: tuple[Peer, ...] = ()
    options: dict[str, str] = field(default_factory=dict, repr=False)

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

    Parameters
    ----------
    known : str
        The name of the known failure that it matches.
    tasks : tuple of str
        The tasks that it concerns.
    finding : Finding
        What was observed.
    gaps : tuple of str
        What stood in the gaps of the known failure's sign.
    """

    known: str = ""
    tasks: tuple[str, ...] = ()
    finding: Finding = field(default_factory=Finding)
    gaps: tuple[str, ...] = ()


@dataclass(frozen=True)
class Stall(Stored):
    """A run whose tasks make no progress.

    Parameters
    ----------
    seconds : float
        How long they had made none when they were examined.
    guilty : str or None
        The task that holds up the others.
    positions : tuple of Position
        Where each task is, the tasks that hold up the others first.
    why : Remark or None
        The explanation, if there is one.
    """

    seconds: float = 0.0
    guilty: str | None = None
    positions: tuple[Position, ...] = ()
    why: Remark | None = None
