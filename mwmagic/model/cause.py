"""Why a run failed, and what else the user should know, as ids and fields.

`mwmagic.words` turns them into sentences.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .position import Position  # noqa: TC001 - read to know how a stall is read back
from .stored import Stored
from .symptom import Finding, Symptom

__all__ = ["Cause", "Location", "Origin", "Peer", "Remark", "Stall"]


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
