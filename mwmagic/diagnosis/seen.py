"""What the logs and stacks of living tasks show."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from typing import TYPE_CHECKING

from mwmagic.frameworks.patterns import alternatives, collected, either
from mwmagic.logs.phases import Phase
from mwmagic.model.cause import Remark
from mwmagic.model.symptom import Finding, Symptom

from .signs import pattern, recognise
from .stacks import position
from .table import REMARKS, STALLS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mwmagic.model.position import Position

    from .stacks import Stack

__all__ = ["Seen", "is_telling", "remarks", "why_stalled"]


@cache
def _targets() -> list[re.Pattern[str]]:
    return [re.compile(text) for text in collected(lambda one: one.server_addresses)]


@cache
def _in_save() -> re.Pattern[str]:
    return either(lambda one: one.save_frames)


@cache
def _twice() -> list[re.Pattern[str]]:
    return [re.compile(text) for text in collected(lambda one: one.duplicates)]


@cache
def _telling() -> re.Pattern[str]:
    signs = [pattern(sign).pattern for known in REMARKS for sign in known.signs]
    named = [one.pattern for one in (*_targets(), *_twice())]
    return re.compile(alternatives([*signs, *named]))


def is_telling(line: str) -> bool:
    """Return whether a line of a log matters to what is seen of a task, however old it is."""
    return _telling().search(line) is not None


@dataclass(frozen=True)
class Seen:
    """What can be seen of a task from outside.

    Parameters
    ----------
    task : str
        The task's name.
    address : str
        The address at which the other tasks expect its server.
    log : str
        The lines of its log that tell something, and its end.
    phase : Phase
        What its log shows of its start-up.
    verbose : bool
        Whether TensorFlow is at work in it and its log contains TensorFlow's notices.
    code : int or None
        Its exit code, if it exited.
    stack : Stack or None
        Where it is, if that is known.
    """

    task: str
    address: str = ""
    log: str = ""
    phase: Phase = field(default_factory=Phase)
    verbose: bool = False
    code: int | None = None
    stack: Stack | None = None

    @property
    def alone(self) -> bool:
        """Whether it trains without having met the other tasks."""
        return self.verbose and self.phase.training and not self.phase.server

    @property
    def targets(self) -> list[str]:
        """The addresses of its own server, according to its log."""
        return [target for one in _targets() for target in one.findall(self.log)]

    @property
    def waits(self) -> bool:
        """Whether it waits inside an operation of the framework."""
        return self.stack is not None and self.stack.waits


def _elsewhere(seen: Seen) -> list[Finding]:
    """Find servers that are not at the address where the other tasks expect them."""
    away = [target for target in seen.targets if seen.address and target != seen.address]
    return [Finding(Symptom.ELSEWHERE, seen.task, address=target) for target in away]


def _noticed(seen: Seen, *, others: bool) -> Iterable[tuple[Finding, str | Finding]]:
    """Yield what is noteworthy about a task, each finding with its evidence."""
    alone = [Finding(Symptom.ALONE, seen.task)] if seen.alone and others else []
    yield from ((finding, finding) for finding in (*alone, *_elsewhere(seen)))
    yield Finding(Symptom.LOGGED, seen.task), seen.log


def remarks(tasks: Sequence[Seen]) -> tuple[Remark, ...]:
    """Return what the user should know about tasks that are running or have succeeded."""
    found: dict[str, Remark] = {}
    for seen in tasks:
        noticed = list(_noticed(seen, others=len(tasks) > 1))
        for known, (finding, evidence) in product(REMARKS, noticed):
            match = recognise([known], [evidence])
            if match is not None:
                before = found[known.name].tasks if known.name in found else ()
                concerned = tuple(dict.fromkeys((*before, seen.task)))
                found[known.name] = Remark(known.name, concerned, finding, match.gaps)
    return tuple(found.values())


def why_stalled(tasks: Sequence[Seen]) -> Remark | None:
    """Return why a gang makes no progress."""
    for finding in _stalls(tasks):
        match = recognise(STALLS, [finding])
        if match is not None:
            concerned = tuple(one.task for one in finding.positions) or (finding.task,)
            return Remark(match.known.name, concerned, finding, match.gaps)
    return None


def _stalls(tasks: Sequence[Seen]) -> Iterable[Finding]:
    """Yield possible explanations of a stall, each of a task to blame, the most certain first."""
    yield from _mistaken(tasks)
    yield from _refused(tasks)
    yield from _missing(tasks)
    inside = [seen for seen in tasks if seen.waits]
    outside = [seen for seen in tasks if seen.stack is not None and not seen.waits]
    for seen in inside:
        if len(inside) < len(tasks) and seen.stack and _in_save().search(seen.stack.text):
            yield Finding(Symptom.WAITS_IN_SAVE, seen.task, at=seen.stack.at)
    if inside and outside:
        yield Finding(Symptom.KEEPS_OTHERS_WAITING, positions=_positions(outside))
    positions = _positions(inside)
    if len({one.at for one in positions}) > 1:
        yield Finding(Symptom.DIFFERENT_PLACES, positions=positions)


def _positions(tasks: Sequence[Seen]) -> tuple[Position, ...]:
    return tuple(position(seen.task, seen.stack) for seen in tasks)


def _mistaken(tasks: Sequence[Seen]) -> Iterable[Finding]:
    """Yield the tasks that listen at another task's address."""
    owners = {seen.address: seen.task for seen in tasks if seen.address}
    for seen in tasks:
        for target in seen.targets:
            owner = owners.get(target, seen.task)
            if owner != seen.task:
                yield Finding(Symptom.TAKES_ANOTHERS_ADDRESS, seen.task, peer=owner, address=target)


def _refused(tasks: Sequence[Seen]) -> Iterable[Finding]:
    """Yield the tasks whose second process the leader rejected, according to its log."""
    named = dict.fromkeys(
        ":".join(found) for one in tasks for sign in _twice() for found in sign.findall(one.log)
    )
    return (Finding(Symptom.SECOND_PROCESS, name) for name in named)


def _missing(tasks: Sequence[Seen]) -> Iterable[Finding]:
    """Yield the tasks for which the creation of the strategy is waiting."""
    known = {seen.task: seen for seen in tasks}
    for seen in tasks:
        for name in seen.phase.waiting:
            other = known.get(name)
            if other is None:
                yield Finding(Symptom.WAITS_FOR_MISSING_TASK, seen.task, peer=name)
            elif not other.phase.server:
                at = other.stack.at if other.stack else None
                yield Finding(Symptom.BEFORE_STRATEGY, name, peer=seen.task, at=at)
            elif not other.phase.joined:
                yield Finding(Symptom.UNREACHABLE, name, peer=seen.task)
