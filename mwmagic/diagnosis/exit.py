"""How a task's process ended."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from mwmagic.logs.tracebacks import find, origins, raised_at, reported
from mwmagic.model.findings import Finding, Location, Origin, Peer, Symptom

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mwmagic.logs.tracebacks import Failure, Frame

__all__ = ["Exit"]

EXCEPTION_LINES = 6
"""The most lines in which an exception is shown."""

EXCEPTION_CHARACTERS = 1200
"""The most characters of it that are shown."""

_IMPOSED = (signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGHUP, signal.SIGXCPU)
"""Signals with which schedulers end processes."""

_LACKING = re.compile(r"NameError: (?:.*\n)*?.*\bname '(\w+)' is not defined")


def _shortened(text: str) -> str:
    """Return an exception's text, cut off where it is too long."""
    lines = text.split("\n")
    kept = "\n".join(lines[:EXCEPTION_LINES])
    if len(kept) > EXCEPTION_CHARACTERS:
        return f"{kept[:EXCEPTION_CHARACTERS]} ..."
    return kept if len(lines) <= EXCEPTION_LINES else f"{kept}\n..."


def _files(report: Mapping[str, Any]) -> list[str]:
    """Return the files that a report names, which any code in a worker may have written."""
    listed = report.get("files")
    return [f'File "{one}"' for one in listed] if isinstance(listed, list) else []


@dataclass(frozen=True)
class Exit:
    """How a task's process ended."""

    task: str
    attempt: int
    code: int | None
    signal: int | None
    """One of the two, as reported by the system; none if the process could not be started or its
    machine was lost."""
    time: float
    """When the exit became known, in monotonic seconds."""
    ended: bool = False
    """Whether mwmagic ended the process before it had failed."""
    cut: bool = False
    """Whether mwmagic ended the process after it had failed, but before it exited."""
    oom: bool | None = None
    """Whether the kernel's out-of-memory killer ended it, if that can be known."""
    detail: str | None = None
    """A message from the agent for people to read: why the process could not be started, why the
    agent ended, or what else went wrong."""
    errno: int | None = None
    """The system's number for it, if it is an error of the system's."""
    lost: bool = False
    """Whether the machine or its agent is gone, and the process with it."""
    host: str | None = None
    """The machine whose agent disappeared without a message."""
    away: str | None = None
    """The machine that it was on, unless that is the supervisor's."""
    unanswered: float = 0.0
    """For how long that machine had not answered then, or not long before, if that was long."""
    stalled: float | None = None
    """Seconds without progress, if mwmagic ended the process because of a stall."""
    report: Mapping[str, Any] | None = None
    """The uncaught exception, as reported by the worker's bootstrap."""
    tail: str = ""
    """The end of its output, as a terminal would show it."""
    script: str = ""
    cell: str = ""
    """The notebook's cell that the script comes from, if any."""
    notebook: frozenset[str] = frozenset()
    """The names that the script uses and that only the notebook defines."""
    address: str = ""
    """The address at which the other tasks expect its server."""
    requested: bool = False
    """Whether mwmagic sent it a signal at the user's request."""
    stopped: bool = False
    """Whether it was stopped by a signal when last seen."""
    stays: bool = False
    """Whether it should have stayed until it was stopped: then no code is a success."""
    place: Frame | None = None
    """The line of the user's code that it was at when another task failed, if it was asked."""

    @property
    def failed(self) -> bool:
        """Whether it failed by itself, rather than being ended by mwmagic."""
        return (self.code != 0 or self.stays) and not self.ended

    @property
    def imposed(self) -> bool:
        """Whether something outside the run may have ended it, such as a scheduler."""
        return self.failed and not self.requested and (self.lost or self.own[1] in _IMPOSED)

    @property
    def unknown(self) -> bool:
        """Whether it never started, or it is not known how it ended."""
        return self.code is None and self.signal is None

    @property
    def moment(self) -> float:
        """When it failed: when the exception was raised, or else when it exited."""
        return float(self.report["time"]) if self.report and "time" in self.report else self.time

    @cached_property
    def failure(self) -> Failure | None:
        """What it raised, according to its report, or else to its log."""
        if self.report:
            return reported(self.report, self.script)
        return find(self.tail, self.script)

    @property
    def exception(self) -> str | None:
        """What it raised, in a few lines; None if the exit code says as much."""
        failure = self.failure
        if failure is None or (failure.type == "SystemExit" and failure.message.isdecimal()):
            return None
        return _shortened(failure.title)

    @property
    def where(self) -> Location | None:
        """The line of the user's code that raised it."""
        return self._located(self.failure.own) if self.failure else None

    @property
    def called(self) -> Location | None:
        """The line of the user's code that ran then, even if another one defined what it ran."""
        return self._located(raised_at(self.report)) if self.report else None

    @property
    def peer(self) -> Peer | None:
        """Where it was when another task failed, if that is known."""
        if self.code == 0 and not self.ended:
            return Peer(self.task)
        where = self.called or self.where or self._located(self.place)
        return Peer(self.task, where) if where else None

    @property
    def origins(self) -> tuple[Origin, ...]:
        """What the exception came from, the nearest first."""
        failures = self.failure.origins if self.failure else ()
        return tuple(
            Origin(_shortened(one.title), self._located(one.own), one.handled) for one in failures
        )

    def _located(self, frame: Frame | None) -> Location | None:
        """Return a line of the user's code, with its place in the notebook.

        A cell's first line is the magic, so the file's first line is the cell's second.
        """
        if frame is None:
            return None
        in_cell = self.cell and frame.file == self.script
        cell = f"{self.cell}, line {frame.line + 1}" if in_cell else None
        return Location(frame.file, frame.line, frame.function, frame.source, cell)

    @property
    def _raised(self) -> list[Mapping[str, Any]]:
        """The reports of the exception and of those from which it was raised on purpose."""
        if not self.report:
            return []
        return [
            self.report,
            *takewhile(lambda one: one.get("handled") is not True, origins(self.report)),
        ]

    @property
    def raised(self) -> tuple[str, ...]:
        """These exceptions in full, each as ``Type: message`` after the files that it came through.

        There are none without a report.
        """
        return tuple(
            "\n".join([*_files(one), f"{one.get('type', '')}: {one.get('message', '')}"])
            for one in self._raised
        )

    @property
    def types(self) -> set[str]:
        """The types of these exceptions."""
        return {str(one.get("type", "")) for one in self._raised}

    @property
    def _intended_code(self) -> int:
        """The exit code that it would have had if mwmagic had not ended it."""
        report = self.report or {}
        message = str(report.get("message", ""))
        exits = report.get("type") == "SystemExit" and message.isdecimal()
        return int(message) & 0xFF if exits else 1

    @property
    def own(self) -> tuple[int | None, int | None]:
        """Its code and signal; those of its own failure if mwmagic ended it after that."""
        return (self._intended_code, None) if self.cut else (self.code, self.signal)

    @property
    def finding(self) -> Finding:
        """How it ended."""
        code, number = self.own
        return Finding(
            self._symptom,
            self.task,
            host=self.host or (self.away if self.lost else None),
            seconds=self.stalled,
            code=code,
            signal=number,
            requested=bool(number and self.requested),
            detail=self.detail,
            errno=self.errno,
        )

    @property
    def _symptom(self) -> Symptom:
        if self.stalled is not None:
            return Symptom.STALLED
        if self.lost:
            return Symptom.HOST_LOST if self.host and self.away else Symptom.AGENT_LOST
        if self.unknown:
            return Symptom.NOT_STARTED if self.detail else Symptom.UNKNOWN
        if self.oom:
            return Symptom.OUT_OF_MEMORY
        if self.own[1] is not None:
            return Symptom.KILLED
        return Symptom.LACKS_NAME if self._lacks & self.notebook else Symptom.EXITED

    @property
    def _lacks(self) -> set[str]:
        """The names whose lack it reported."""
        return {name for text in self.raised for name in _LACKING.findall(text)}
