"""Why a run failed, and what else the user should know, as ids and fields.

`mwmagic.words` turns them into sentences.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .position import Position  # noqa: TC001 - read to know how a stall is read back
from .stored import Stored
from .symptom import Finding, Symptom

__all__ = ["Cause", "Notice", "Origin", "Stall"]


@dataclass(frozen=True)
class Origin(Stored):
    """An exception from which another one came.

    Parameters
    ----------
    exception : str
        ``Type: message``, several lines at most.
    where : dict or None
        The innermost line of the user's own code, as in `Cause`.
    handled : bool
        Whether the other one was raised while this one was handled, rather than ``from`` it.
    """

    exception: str = ""
    where: dict[str, Any] | None = None
    handled: bool = False


@dataclass(frozen=True)
class Cause(Stored):
    """The first failure of a run.

    Parameters
    ----------
    finding : Finding
        The task that failed first, and how.
    exception : str or None
        The uncaught exception, as ``Type: message``, several lines at most.
    where : dict or None
        The innermost line of the user's own code: ``file``, ``line``,
        ``function``, ``source``, and ``cell`` if it is in a notebook's cell. If the
        task finished too early, the line that its peer had reached.
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
    """

    finding: Finding = field(default_factory=Finding)
    exception: str | None = None
    where: dict[str, Any] | None = None
    known: str | None = None
    gaps: tuple[str, ...] = ()
    consequences: tuple[str, ...] = ()
    origins: tuple[Origin, ...] = ()
    log: tuple[str, ...] = field(default=(), repr=False)

    @property
    def task(self) -> str:
        """The task that failed first."""
        return self.finding.task

    @property
    def symptom(self) -> Symptom:
        """How it failed."""
        return self.finding.symptom


@dataclass(frozen=True)
class Notice(Stored):
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
    why : Notice or None
        The explanation, if there is one.
    """

    seconds: float = 0.0
    guilty: str | None = None
    positions: tuple[Position, ...] = ()
    why: Notice | None = None
