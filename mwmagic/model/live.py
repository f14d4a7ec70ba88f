"""Live cells: what tasks answer, and what is reported of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from .values import Stored

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "CELL_BYTES",
    "EXCHANGE",
    "FREED",
    "LIVE_SCRIPT",
    "PARTNERS",
    "PROGRAM_CELL",
    "Answer",
    "AnswerRecord",
    "CellNews",
    "CellRecord",
    "Raised",
    "parcel_name",
]

LIVE_SCRIPT = "live.py"
"""The name of the program that takes cells, as a run's script."""

EXCHANGE = "mwmagic.worker.live.parcel"
"""The module that cells use which move values; it is in the code of no others."""

PARTNERS = ("chief:", "worker:")
"""How the names of tasks begin that have collectives in common."""

PROGRAM_CELL: int = 0
"""The number of a program in place of a cell's: its processes may stay, and then take cells."""

FREED = "freed by mwmagic, as another task does not come to this collective"
"""What TensorFlow says of a collective that was ended."""

CELL_BYTES = 200_000
"""The longest packet to a task; the system's sockets take 212,992 bytes at once."""


class CellNews(str, Enum):
    """What is reported of a cell.

    ``show``: a task displays a ``value``, by MIME type.
    ``ask``: a task waits for a line that its user types after a ``prompt``, which may be a
    ``debugger``'s.
    ``queued``: its number, where it waits for another one. ``begun``: its number, and for each
    task the log and where in it the cell's output begins.
    ``answer``: a task's answer. ``waits``: the tasks that wait inside the framework, for those
    that ``raised`` or ``finished``, or are ``asking`` in a debugger. ``refused``: it does not run,
    since some tasks are ``stuck`` in an earlier one. ``freed``: the tasks that were ``freed`` from
    a collective, those for which they waited, and after how many ``seconds``; ``recovered``: what
    became of their state (see `mwmagic.cells.events.Freed` and `Recovered`). ``done``: it is over,
    ``why`` (see
    `mwmagic.cells.events.End`), and the tasks that are ``unanswered`` did not answer.
    ``stopped``: a ``task`` is stopped by a signal; its ``pid``, and the machine if it is ``away``.
    ``looked``: what a task ``found`` of a name, or None where no task is idle.
    """

    QUEUED = "queued"
    BEGUN = "begun"
    SHOW = "show"
    ASK = "ask"
    ANSWER = "answer"
    LOOKED = "looked"
    WAITS = "waits"
    STOPPED = "stopped"
    REFUSED = "refused"
    FREED = "freed"
    RECOVERED = "recovered"
    DONE = "done"


def parcel_name(place: str, task: str) -> str:
    """Return the file at a place that holds the values which a task gives away."""
    return f"{place}.{task.replace(':', '-')}"


@dataclass(frozen=True)
class Raised:
    """What a cell raised on a task, at a line of the cell that counts from 1.

    `trace` is the traceback as Python prints it; `left` says that it is the end of a debugger that
    was left, rather than an error.
    """

    type: str
    message: str
    line: int | None
    trace: str
    left: bool = False

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> Raised:
        """Return what a worker sent, which any code in it may have written."""
        line = values.get("line")
        texts = (str(values.get(name, "")) for name in ("type", "message", "trace"))
        kind, message, trace = texts
        left = values.get("left") is True
        return cls(kind, message, line if isinstance(line, int) else None, trace, left=left)


@dataclass(frozen=True)
class Answer:
    """What a task answers to a cell."""

    task: str
    raised: Raised | None
    value: Mapping[str, Any]
    """The value of its last expression by MIME type, as IPython displays it; empty for None."""
    seconds: float
    end: int
    """Where in the task's log the cell's output ends, in bytes."""
    freed: bool = False
    """Whether what it raised only comes from its being freed from a collective."""

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> Answer:
        """Return what a worker sent, which any code in it may have written."""
        raised, value = values.get("raised"), values.get("value")
        seconds = values.get("seconds")
        return cls(
            str(values["task"]),
            Raised.read(raised) if isinstance(raised, dict) else None,
            value if isinstance(value, dict) else {},
            float(seconds) if isinstance(seconds, int | float) else 0.0,
            int(values["end"]),
            values.get("freed") is True,
        )


@dataclass(frozen=True)
class AnswerRecord(Stored):
    """What the record keeps of a task's answer.

    The cell's output is in the task's log from byte `start` to `end`; `raised` is the type of what
    it raised, and `message` its text.
    """

    start: int = 0
    end: int = 0
    seconds: float = 0.0
    raised: str | None = None
    message: str = ""


@dataclass(frozen=True)
class CellRecord(Stored):
    """What the record keeps of a cell that is over, besides its code."""

    cell: int = 0
    name: str = ""
    """Its name in tracebacks."""
    tasks: tuple[str, ...] = ()
    attempt: int = 0
    """The attempt of the session: a reset begins another one."""
    begun: float = 0.0
    """In seconds of the wall clock."""
    why: str = ""
    """Why it is over, as `mwmagic.cells.events.End` says."""
    answers: dict[str, AnswerRecord] = field(default_factory=dict)
    """The answers of the tasks that answered, by task."""
