"""Where tasks are, according to their stacks."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from .stored import Stored

__all__ = ["Examination", "Position", "Whereabouts"]


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
