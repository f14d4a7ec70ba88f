"""The first failure of an attempt, found among the ends of its tasks.

What happened first is the cause, by the monotonic clock of the machine it
happened on; but a task that says that another one is gone was only hurt,
however early it says so. Where all who failed were hurt, the one that they
hold responsible is the cause, although it did not fail: it no longer answered,
or it finished while they still needed it.
"""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING, Any

from mwmagic.logs.failure import find
from mwmagic.logs.noise import Noise
from mwmagic.model.cause import Cause

from .kind import blamed, is_consequence
from .signs import recognise
from .table import KNOWN

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .exit import Exit

__all__ = ["diagnose"]

LAST_LINES = 12
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
    """Return who did not fail, but is responsible for those who were hurt."""
    name = blamed(hurt, _leader([*hurt, *others]))
    named = [end for end in others if end.task == name]
    early = [end for end in others if end.code == 0 and end.time <= hurt[0].time]
    return next(iter([*named, *early]), None)


def _leader(exits: Iterable[Exit]) -> str:
    """Return the task that runs TensorFlow's coordination service."""
    names = {end.task for end in exits}
    return "chief:0" if "chief:0" in names else "worker:0"


def _own(end: Exit, hurt: Sequence[Exit]) -> Cause:
    """Tell of a task that failed by itself."""
    where = end.place((end.report or {}).get("where"))
    exception = end.exception
    if not end.report and (crash := find(end.tail, end.script)) is not None:
        exception = f"{crash.type}: {crash.summary}".strip(": ")
        where = end.place(vars(crash.own)) if crash.own else None
    said = (end.tail, end.how) if end.signal in _CRASHES else (end.how, end.tail)
    texts = (end.raised, *said)
    return _cause(end, end.how, texts, hurt, exception=exception, where=where)


def _blamed(end: Exit, hurt: Sequence[Exit]) -> Cause:
    """Tell of a task that did not fail, but let the others down."""
    first = hurt[0]
    source = str(((first.report or {}).get("where") or {}).get("source", ""))
    if end.code != 0:
        what = "no longer answered the others, and was ended"
        what = f"was stopped by a signal and {what}" if end.stopped else what
        where = None
    elif _SAVES.search(source):
        what = "finished while another saved, which needs it"
        where = first.place((first.report or {}).get("where"))
    else:
        what, where = "finished while others still needed it", None
    return _cause(end, what, (what,), hurt, where=where)


def _cause(
    end: Exit,
    what: str,
    texts: Iterable[str],
    hurt: Sequence[Exit],
    *,
    exception: str | None = None,
    where: dict[str, Any] | None = None,
) -> Cause:
    known = None if end.signal and end.asked else recognise(KNOWN, texts)
    return Cause(
        task=end.task,
        what=what,
        exception=exception,
        where=where,
        known=known.name if known else None,
        meaning=known.meaning if known else None,
        remedy=known.remedy if known else None,
        link=known.link if known else None,
        consequences=tuple(one.task for one in hurt if one is not end),
        log=_last(end.tail),
    )


def _last(tail: str) -> tuple[str, ...]:
    """Return the last lines of a log that say something."""
    noise = Noise()
    lines = [line for line in tail.splitlines() if not noise.hides(line) and line.strip()]
    return tuple(lines[-LAST_LINES:])
