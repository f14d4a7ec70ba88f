"""Follows a worker through the start-up of a multi-worker job, from what its framework logs.

TensorFlow logs these phases at ``TF_CPP_MIN_LOG_LEVEL=0``. Only the leader (``chief:0``,
else ``worker:0``) knows which tasks are missing and when all have met; the others only
log that they reached the leader.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

from mwmagic.frameworks import Milestone, frameworks

from .noise import NATIVE

if TYPE_CHECKING:
    from collections.abc import Callable

    from mwmagic.model.status import PhaseName


@dataclass(frozen=True)
class Phase:
    """Which milestones of a start-up one worker has passed."""

    server: bool = False
    """It listens for the others."""
    joined: bool = False
    """It reached the leader's coordination service."""
    missing: int = 0
    """How many tasks the leader waits for; 0 for all other tasks."""
    waiting: tuple[str, ...] = ()
    """The tasks that it waits for, such as ``worker:1``; of many, TensorFlow names a few."""
    connected: bool = False
    """All have met. A TensorFlow worker that is not the leader does not log this, so it is set with
    the worker's first progress.
    """
    training: bool = False
    """It has made progress."""

    @property
    def name(self) -> PhaseName:
        """The furthest milestone."""
        if self.training:
            return "training"
        if self.connected:
            return "connected"
        if self.missing or self.waiting:
            return "waiting"
        return "server" if self.server else "starting"


def _server(phase: Phase, _: re.Match[str]) -> Phase:
    return replace(phase, server=True)


def _joined(phase: Phase, _: re.Match[str]) -> Phase:
    return replace(phase, joined=True)


def _connected(phase: Phase, _: re.Match[str] | None = None) -> Phase:
    return replace(phase, joined=True, missing=0, waiting=(), connected=True)


def _missing(phase: Phase, found: re.Match[str]) -> Phase:
    count = int(found["count"])
    return replace(phase, missing=count, waiting=()) if count else _connected(phase)


def _stragglers(phase: Phase, _: re.Match[str]) -> Phase:
    return phase


def _straggler(phase: Phase, found: re.Match[str]) -> Phase:
    waiting = dict.fromkeys([*phase.waiting, f"{found['job']}:{found['index']}"])
    return replace(phase, waiting=tuple(waiting))


def _arrived(phase: Phase, found: re.Match[str]) -> Phase:
    task = f"{found['job']}:{found['index']}"
    return replace(phase, waiting=tuple(name for name in phase.waiting if name != task))


_STEPS: dict[str, Callable[[Phase, re.Match[str]], Phase]] = {
    "server": _server,
    "joined": _joined,
    "connected": _connected,
    "missing": _missing,
    "stragglers": _stragglers,
    "straggler": _straggler,
    "arrived": _arrived,
}
"""How each kind of `mwmagic.frameworks.Milestone` changes a phase."""


@cache
def _milestones() -> tuple[tuple[Milestone, re.Pattern[str]], ...]:
    """Return the milestones of all frameworks, with their compiled patterns."""
    every = dict.fromkeys(milestone for one in frameworks() for milestone in one.milestones)
    return tuple((milestone, re.compile(milestone.pattern)) for milestone in every)


def _find(line: str, native: re.Match[str] | None) -> tuple[str, re.Match[str] | None]:
    """Return the kind of milestone in a line, if any, and the match."""
    for milestone, pattern in _milestones():
        if not milestone.native:
            found = pattern.search(line)
        else:
            found = pattern.match(line, native.end()) if native else None
        if found is not None:
            return milestone.kind, found
    return "", None


class Phases:
    """Reads the lines of one worker in order, up to its first progress."""

    def __init__(self) -> None:
        self.phase = Phase()
        self._listing = False  # inside the list of stragglers

    def feed(self, line: str) -> Phase:
        """Take the next finished line, without ANSI codes, and return the worker's phase."""
        if not self.phase.training:
            self._read(line)
        return self.phase

    def train(self) -> Phase:
        """Note that the worker made progress, according to its log or a report."""
        self.phase = replace(_connected(self.phase), training=True)
        return self.phase

    def _read(self, line: str) -> None:
        native = NATIVE.match(line)
        kind, found = _find(line, native)
        if found is not None and (self._listing or kind != "straggler"):
            self.phase = _STEPS[kind](self.phase, found)
        if native is not None or kind == "stragglers":
            self._listing = kind == "stragglers"
