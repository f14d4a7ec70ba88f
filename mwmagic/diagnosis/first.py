"""The first failure of an attempt, found among the exits of its tasks.

The earliest failure is the cause, by the monotonic clock of the machine on
which it happened. But if a task reports that another one is gone, its failure is
only a consequence, however early it is reported. If all failures are
consequences, the cause is the task that they blame, although it did not fail
itself: it stopped responding, or it finished while the others still needed it.
"""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING, Any

from mwmagic.logs.failure import find
from mwmagic.logs.noise import Noise
from mwmagic.model.cause import Cause
from mwmagic.model.symptom import Finding, Symptom

from .kind import blamed, is_consequence
from .signs import recognise
from .table import KNOWN

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .exit import Exit

__all__ = ["diagnose"]

LOG_LINES = 12
"""How many lines from the end of the log a cause shows."""

_SAVES = re.compile(r"\.(?:save\w*|export)\(")

_CRASHES = (signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV)
"""Signals that a process causes itself: the end of its output says more than they do."""


def diagnose(exits: Sequence[Exit]) -> Cause | None:
    """Find the cause among the exits of an attempt.

    Returns
    -------
    Cause or None
        None when no task failed.
    """
    consequences: list[Exit] = []
    primary: list[Exit] = []
    not_failed: list[Exit] = []
    for end in sorted(exits, key=lambda end: end.moment):
        failures = consequences if is_consequence(end) else primary
        (failures if end.failed else not_failed).append(end)
    if primary:
        return _failed(primary[0], consequences)
    if not consequences:
        return None
    guilty = _guilty(consequences, not_failed)
    if guilty is None:
        return _failed(consequences[0], consequences)
    return _blamed(guilty, consequences)


def _guilty(consequences: Sequence[Exit], not_failed: Sequence[Exit]) -> Exit | None:
    """Return the task that did not fail, but caused the failures of the others."""
    name = blamed(consequences, _leader([*consequences, *not_failed]))
    named = [end for end in not_failed if end.task == name]
    early = [end for end in not_failed if end.code == 0 and end.time <= consequences[0].time]
    return next(iter([*named, *early]), None)


def _leader(exits: Iterable[Exit]) -> str:
    """Return the task that runs TensorFlow's coordination service."""
    names = {end.task for end in exits}
    return "chief:0" if "chief:0" in names else "worker:0"


def _failed(end: Exit, consequences: Sequence[Exit]) -> Cause:
    """Return the cause if it is a task that failed."""
    where = end.place((end.report or {}).get("where"))
    exception = end.exception
    if not end.report and (crash := find(end.tail, end.script)) is not None:
        exception = f"{crash.type}: {crash.summary}".strip(": ")
        where = end.place(vars(crash.own)) if crash.own else None
    finding = end.finding
    observed = (finding, finding.detail or "")
    said = (end.tail, *observed) if end.signal in _CRASHES else (*observed, end.tail)
    evidence = (end.raised, *said)
    return _cause(end, finding, evidence, consequences, exception=exception, where=where)


def _blamed(end: Exit, consequences: Sequence[Exit]) -> Cause:
    """Return the cause if it is a task that did not fail, but made the others fail."""
    first = consequences[0]
    source = str(((first.report or {}).get("where") or {}).get("source", ""))
    where = None
    if end.code != 0:
        symptom = Symptom.STOPPED_BY_SIGNAL if end.stopped else Symptom.SILENT
    elif _SAVES.search(source):
        symptom = Symptom.FINISHED_DURING_SAVE
        where = first.place((first.report or {}).get("where"))
    else:
        symptom = Symptom.FINISHED_EARLY
    finding = Finding(symptom, end.task, peer=first.task)
    return _cause(end, finding, (finding,), consequences, where=where)


def _cause(
    end: Exit,
    finding: Finding,
    evidence: Iterable[str | Finding],
    consequences: Sequence[Exit],
    *,
    exception: str | None = None,
    where: dict[str, Any] | None = None,
) -> Cause:
    match = None if finding.requested else recognise(KNOWN, evidence)
    return Cause(
        finding=finding,
        exception=exception,
        where=where,
        known=match.known.name if match else None,
        gaps=match.gaps if match else (),
        consequences=tuple(one.task for one in consequences if one is not end),
        log=_last(end.tail),
    )


def _last(tail: str) -> tuple[str, ...]:
    """Return the last lines of a log that mean something to a user."""
    noise = Noise()
    lines = [line for line in tail.splitlines() if not noise.hides(line) and line.strip()]
    return tuple(lines[-LOG_LINES:])
