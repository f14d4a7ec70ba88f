"""How a task's process ended."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mwmagic.logs.failure import Failure
from mwmagic.model.symptom import Finding, Symptom

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Exit"]

EXCEPTION_CHARACTERS = 300
"""Characters of an exception's line."""

_DUMP = re.compile(r"PerReplica:\{\n.*?\n\}", re.DOTALL)


@dataclass(frozen=True)
class Exit:
    """How a task's process ended.

    Parameters
    ----------
    task : str
        Its name, such as ``worker:1``.
    attempt : int
        In which attempt.
    code, signal : int or None
        One of them, as the system reports it; neither when the process could
        not be started or its machine was lost.
    time : float
        Monotonic seconds at which it became known.
    ended : bool
        Whether mwmagic ended it, before it had failed.
    cut : bool
        Whether mwmagic ended it after it had failed and before it was gone.
    oom : bool or None
        Whether the kernel's out-of-memory killer did, where that can be known.
    detail : str or None
        What the agent adds for people to read: why the process could not be
        started, why the agent ended, or what else went wrong.
    lost : bool
        Whether its machine or agent is gone, and with it the process.
    host : str or None
        The machine whose agent is gone without a word.
    stalled : float or None
        Seconds without progress after which mwmagic ended it, if it did so for that.
    report : mapping or None
        The uncaught exception, as the worker's bootstrap reports it.
    tail : str
        The end of what it printed, as a terminal would show it.
    script : str
        The user's file.
    cell : str
        The notebook's cell that it comes from, if it does.
    address : str
        Where the others expect its server.
    requested : bool
        Whether the user had mwmagic send it a signal.
    stopped : bool
        Whether it was last seen stopped by a signal.
    """

    task: str
    attempt: int
    code: int | None
    signal: int | None
    time: float
    ended: bool = False
    cut: bool = False
    oom: bool | None = None
    detail: str | None = None
    lost: bool = False
    host: str | None = None
    stalled: float | None = None
    report: Mapping[str, Any] | None = None
    tail: str = ""
    script: str = ""
    cell: str = ""
    address: str = ""
    requested: bool = False
    stopped: bool = False

    @property
    def failed(self) -> bool:
        """Whether it ended badly, and not because mwmagic ended it."""
        return self.code != 0 and not self.ended

    @property
    def unknown(self) -> bool:
        """Whether it is not known how it ended, or it never began."""
        return self.code is None and self.signal is None

    @property
    def moment(self) -> float:
        """When it failed: when the exception was raised, or else when it was gone."""
        return float(self.report["time"]) if self.report and "time" in self.report else self.time

    def place(self, where: Mapping[str, Any] | None) -> dict[str, Any] | None:
        """Return a line of the user's code, with where it is in the notebook.

        A cell's first line is the magic, so the file's first is its second.
        """
        if not where:
            return None
        if not self.cell or str(where.get("file")) != self.script:
            return dict(where)
        return {**where, "cell": f"{self.cell}, line {int(where.get('line') or 0) + 1}"}

    @property
    def raised(self) -> str:
        """The uncaught exception in full, as ``Type: message``; empty without one."""
        if not self.report:
            return ""
        return f"{self.report.get('type', '')}: {self.report.get('message', '')}"

    @property
    def exception(self) -> str | None:
        """The uncaught exception in a line."""
        if not self.report:
            return None
        if self.report.get("type") == "SystemExit" and str(self.report.get("message")).isdecimal():
            return None  # the exit code says it
        message = _DUMP.sub("PerReplica:{...}", str(self.report.get("message", "")))
        kind = str(self.report.get("type", ""))
        text = f"{kind}: {Failure(kind, message, ()).summary}".rstrip(": ")
        return text if len(text) <= EXCEPTION_CHARACTERS else f"{text[:EXCEPTION_CHARACTERS]} ..."

    @property
    def _meant(self) -> int:
        """The exit code that it would have had."""
        report = self.report or {}
        message = str(report.get("message", ""))
        exits = report.get("type") == "SystemExit" and message.isdecimal()
        return int(message) & 0xFF if exits else 1

    @property
    def own(self) -> tuple[int | None, int | None]:
        """Its code and signal; those of its own failure where mwmagic cut it short after that."""
        return (self._meant, None) if self.cut else (self.code, self.signal)

    @property
    def finding(self) -> Finding:
        """How it ended."""
        code, number = self.own
        return Finding(
            self._symptom,
            self.task,
            host=self.host,
            seconds=self.stalled,
            code=code,
            signal=number,
            requested=bool(number and self.requested),
            detail=self.detail,
        )

    @property
    def _symptom(self) -> Symptom:
        if self.stalled is not None:
            return Symptom.STALLED
        if self.lost:
            return Symptom.AGENT_LOST
        if self.unknown:
            return Symptom.NOT_STARTED if self.detail else Symptom.UNKNOWN
        if self.oom:
            return Symptom.OUT_OF_MEMORY
        return Symptom.EXITED if self.own[1] is None else Symptom.KILLED
