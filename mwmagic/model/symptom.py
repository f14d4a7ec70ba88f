"""What was observed of a task, as an id with fields; `mwmagic.words` turns it into a sentence."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import Enum
from typing import Any

from .position import Position  # noqa: TC001 - read to know how a finding is read back
from .stored import Stored

__all__ = ["Finding", "Symptom"]


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
