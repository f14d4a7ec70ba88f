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
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mwmagic.logs.frame import Ours
from mwmagic.logs.noise import Noise
from mwmagic.model.cause import Cause
from mwmagic.model.symptom import Finding, Symptom
from mwmagic.model.variables import ANNOUNCED

from .kind import blamed, is_consequence
from .signs import recognise
from .table import AT_LINES, KNOWN

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mwmagic.model.cause import Peer

    from .exit import Exit

__all__ = ["diagnose", "involves_others"]

LOG_LINES = 12
"""How many lines from the end of the log a cause shows."""

_SAVES = re.compile(r"\.(?:save\w*|export)\(")

_CRASHES = (signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV)
"""Signals that a process causes itself: the end of its output says more than they do."""


def diagnose(exits: Sequence[Exit], options: Mapping[str, str] | None = None) -> Cause | None:
    """Find the cause among the exits of an attempt."""
    consequences: list[Exit] = []
    primary: list[Exit] = []
    not_failed: list[Exit] = []
    for end in sorted(exits, key=lambda end: end.moment):
        failures = consequences if is_consequence(end) else primary
        (failures if end.failed else not_failed).append(end)
    case = _Case(exits, tuple(consequences), dict(options or {}))
    if primary:
        return _with_host(_failed(primary[0], case), exits)
    if not consequences:
        return None
    guilty = _guilty(consequences, not_failed)
    return _failed(consequences[0], case) if guilty is None else _blamed(guilty, case)


@dataclass(frozen=True)
class _Case:
    """All ends, those that are consequences, and the run's options."""

    exits: Sequence[Exit]
    consequences: tuple[Exit, ...]
    options: dict[str, str]

    def others(self, end: Exit) -> tuple[Peer, ...]:
        """Return where the other tasks were."""
        peers = (one.peer for one in self.exits if one is not end)
        return tuple(peer for peer in peers if peer is not None)


def _with_host(cause: Cause, exits: Iterable[Exit]) -> Cause:
    """Name all tasks that were lost with a machine or its agent, if one of several was lost."""
    if cause.symptom not in (Symptom.HOST_LOST, Symptom.AGENT_LOST) or not cause.finding.host:
        return cause
    lost = tuple(end.task for end in exits if end.lost and end.away == cause.finding.host)
    return replace(cause, finding=replace(cause.finding, tasks=lost))


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


def _failed(end: Exit, case: _Case) -> Cause:
    """Return the cause if it is a task that failed."""
    finding = end.finding
    said = (end.tail, finding) if end.signal in _CRASHES else (finding, end.tail)
    cause = _cause(end, finding, (*end.raised, *said), case)
    return replace(cause, exception=end.exception, where=end.where, origins=end.origins)


def _blamed(end: Exit, case: _Case) -> Cause:
    """Return the cause if it is a task that did not fail, but made the others fail."""
    first = case.consequences[0]
    needed = first.called or first.where
    if end.code != 0:
        symptom = Symptom.STOPPED_BY_SIGNAL if end.stopped else Symptom.SILENT
    elif needed and _SAVES.search(needed.source):
        symptom = Symptom.FINISHED_DURING_SAVE
    else:
        symptom = Symptom.FINISHED_EARLY
    finding = Finding(symptom, end.task, peer=first.task)
    cause = _cause(end, finding, (finding,), case)
    return replace(cause, where=needed) if end.code == 0 else cause


def _cause(end: Exit, finding: Finding, evidence: Iterable[str | Finding], case: _Case) -> Cause:
    others = case.others(end)
    lines = "different" if _apart(end, others) else "same"
    known_of_it = {**case.options, AT_LINES: lines}
    match = None if finding.requested else recognise(KNOWN, evidence, known_of_it)
    return Cause(
        finding=finding,
        known=match.known.name if match else None,
        gaps=match.gaps if match else (),
        consequences=tuple(one.task for one in case.consequences if one is not end),
        log=_last(end.tail),
        others=others if match and match.known.together else (),
        options=case.options,
    )


def _apart(end: Exit, others: Iterable[Peer]) -> bool:
    """Return whether another task is known to have been at another line."""
    own = end.called or end.where
    places = [peer.where for peer in others if peer.where is not None]
    return own is not None and any((one.file, one.line) != (own.file, own.line) for one in places)


def involves_others(end: Exit) -> bool:
    """Return whether it says more of a failure where the other tasks are at that moment."""
    if not end.failed:
        return False
    match = recognise([one for one in KNOWN if one.together], (*end.raised, end.tail))
    return match is not None


def _last(tail: str) -> tuple[str, ...]:
    """Return the last lines of a log that the user's code, or an error, printed."""
    noise, frames = Noise(), Ours()
    lines = [line for line in tail.splitlines() if not noise.hides(line) and line.strip()]
    own = [line for line in lines if not frames.hides(line) and not line.startswith(ANNOUNCED)]
    return tuple(own[-LOG_LINES:])
