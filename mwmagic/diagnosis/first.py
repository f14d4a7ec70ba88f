"""The first failure of an attempt, found among the ends of its tasks.

What happened first is the cause, by the monotonic clock of the machine it
happened on; but a task that reports that another one is gone was only hurt,
however early it reports it. If all the tasks that failed were hurt, the one
they hold responsible is the cause, although it did not fail itself: it stopped
responding, or it finished while they still needed it.
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
"""Lines of a log's end that a cause shows."""

_SAVES = re.compile(r"\.(?:save\w*|export)\(")

_CRASHES = (signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV)
"""Signals that a process gets for what it does itself: its last words say more."""


def diagnose(exits: Sequence[Exit]) -> Cause | None:
    """Find the cause among the exits of an attempt.

    Returns
    -------
    Cause or None
        None when no task failed.
    """
    hurt: list[Exit] = []
    own: list[Exit] = []
    others: list[Exit] = []
    for end in sorted(exits, key=lambda end: end.moment):
        kept = others if not end.failed else hurt if is_consequence(end) else own
        kept.append(end)
    if own:
        return _own(own[0], hurt)
    if not hurt:
        return None
    guilty = _guilty(hurt, others)
    return _own(hurt[0], hurt) if guilty is None else _blamed(guilty, hurt)


def _guilty(hurt: Sequence[Exit], others: Sequence[Exit]) -> Exit | None:
    """Return the task that did not fail, but is responsible for those that were hurt."""
    name = blamed(hurt, _leader([*hurt, *others]))
    named = [end for end in others if end.task == name]
    early = [end for end in others if end.code == 0 and end.time <= hurt[0].time]
    return next(iter([*named, *early]), None)


def _leader(exits: Iterable[Exit]) -> str:
    """Return the task that runs TensorFlow's coordination service."""
    names = {end.task for end in exits}
    return "chief:0" if "chief:0" in names else "worker:0"


def _own(end: Exit, hurt: Sequence[Exit]) -> Cause:
    """Return the cause for a task that failed by itself."""
    where = end.place((end.report or {}).get("where"))
    exception = end.exception
    if not end.report and (crash := find(end.tail, end.script)) is not None:
        exception = f"{crash.type}: {crash.summary}".strip(": ")
        where = end.place(vars(crash.own)) if crash.own else None
    finding = end.finding
    observed = (finding, finding.detail or "")
    said = (end.tail, *observed) if end.signal in _CRASHES else (*observed, end.tail)
    return _cause(end, finding, (end.raised, *said), hurt, exception=exception, where=where)


def _blamed(end: Exit, hurt: Sequence[Exit]) -> Cause:
    """Return the cause for a task that did not fail, but failed the others."""
    first = hurt[0]
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
    return _cause(end, finding, (finding,), hurt, where=where)


def _cause(
    end: Exit,
    finding: Finding,
    evidence: Iterable[str | Finding],
    hurt: Sequence[Exit],
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
        consequences=tuple(one.task for one in hurt if one is not end),
        log=_last(end.tail),
    )


def _last(tail: str) -> tuple[str, ...]:
    """Return the last lines of a log that say something."""
    noise = Noise()
    lines = [line for line in tail.splitlines() if not noise.hides(line) and line.strip()]
    return tuple(lines[-LOG_LINES:])
