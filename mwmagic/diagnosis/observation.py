"""What the logs and stacks of living tasks show.

The bootstrap registers ``faulthandler`` for a signal, so even a process whose
main thread is inside a C call, such as a collective, dumps its stacks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from mwmagic.frameworks import alternatives, collected, either
from mwmagic.logs.progress import Phase
from mwmagic.logs.tracebacks import Frame
from mwmagic.model.findings import Finding, Position, Remark, Symptom, Whereabouts
from mwmagic.model.ownership import is_users

from .known import pattern, recognise
from .running import REMARKS, STALLS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["Observation", "Stack", "is_notable", "parse", "positions", "remarks", "why_stalled"]


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
def _notable() -> re.Pattern[str]:
    signs = [pattern(sign).pattern for known in REMARKS for sign in known.signs]
    named = [one.pattern for one in (*_targets(), *_twice())]
    return re.compile(alternatives([*signs, *named]))


def is_notable(line: str) -> bool:
    """Return whether a line of a log matters to what is seen of a task, however old it is."""
    return _notable().search(line) is not None


@dataclass(frozen=True)
class Observation:
    """What can be seen of a task from outside."""

    task: str
    address: str = ""
    """The address at which the other tasks expect its server."""
    log: str = ""
    """The lines of its log that tell something, and its end."""
    phase: Phase = field(default_factory=Phase)
    """What its log shows of its start-up."""
    verbose: bool = False
    """Whether TensorFlow is at work in it and its log contains TensorFlow's notices."""
    code: int | None = None
    """Its exit code, if it exited."""
    over: bool = False
    """Whether its program is over; the process may take long to end."""
    stack: Stack | None = None
    """Where it is, if that is known."""

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


def _elsewhere(seen: Observation) -> list[Finding]:
    """Find servers that are not at the address where the other tasks expect them."""
    away = [target for target in seen.targets if seen.address and target != seen.address]
    return [Finding(Symptom.ELSEWHERE, seen.task, address=target) for target in away]


def _noticed(seen: Observation, *, others: bool) -> Iterable[tuple[Finding, str | Finding]]:
    """Yield what is noteworthy about a task, each finding with its evidence."""
    alone = [Finding(Symptom.ALONE, seen.task)] if seen.alone and others else []
    yield from ((finding, finding) for finding in (*alone, *_elsewhere(seen)))
    yield Finding(Symptom.LOGGED, seen.task), seen.log


def remarks(tasks: Sequence[Observation]) -> tuple[Remark, ...]:
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


def why_stalled(tasks: Sequence[Observation]) -> Remark | None:
    """Return why a gang makes no progress."""
    for finding in _stalls(tasks):
        match = recognise(STALLS, [finding])
        if match is not None:
            concerned = tuple(one.task for one in finding.positions) or (finding.task,)
            return Remark(match.known.name, concerned, finding, match.gaps)
    return None


def _stalls(tasks: Sequence[Observation]) -> Iterable[Finding]:
    """Yield possible explanations of a stall, each of a task to blame, the most certain first."""
    yield from _mistaken(tasks)
    yield from _refused(tasks)
    yield from _missing(tasks)
    for seen in tasks:
        if seen.over and seen.stack is not None and seen.stack.finalizes:
            yield Finding(Symptom.DOES_NOT_END, seen.task)
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


def _positions(tasks: Sequence[Observation]) -> tuple[Position, ...]:
    return tuple(_position(seen.task, seen.stack) for seen in tasks)


def _mistaken(tasks: Sequence[Observation]) -> Iterable[Finding]:
    """Yield the tasks that listen at another task's address."""
    owners = {seen.address: seen.task for seen in tasks if seen.address}
    for seen in tasks:
        for target in seen.targets:
            owner = owners.get(target, seen.task)
            if owner != seen.task:
                yield Finding(Symptom.TAKES_ANOTHERS_ADDRESS, seen.task, peer=owner, address=target)


def _refused(tasks: Sequence[Observation]) -> Iterable[Finding]:
    """Yield the tasks whose second process the leader rejected, according to its log."""
    named = dict.fromkeys(
        ":".join(found) for one in tasks for sign in _twice() for found in sign.findall(one.log)
    )
    return (Finding(Symptom.SECOND_PROCESS, name) for name in named)


def _missing(tasks: Sequence[Observation]) -> Iterable[Finding]:
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


_FRAME = re.compile(r'  File "(?P<file>.+)", line (?P<line>\d+) in (?P<function>.+)')
_THREAD = re.compile(r"^(?:Current thread|Thread) 0x[0-9a-f]+.*$", re.MULTILINE)
_ENTRIES = ("/mwmagic/worker/bootstrap.py", "/mwmagic/agent/fork_server/zygote.py")
"""The files that run the user's file, in the thread that does."""


@cache
def _framework() -> re.Pattern[str]:
    return either(lambda one: one.frames)


@dataclass(frozen=True)
class Stack:
    """The main thread's stack of one task."""

    text: str
    """Every thread's stack, as ``faulthandler`` writes it."""
    at: str | None
    """The innermost line of the user's own code, as ``file:line in function``."""
    waits: bool
    """Whether that line has called an operation of the framework."""
    frame: Frame | None = None
    """That line, without its source."""

    @property
    def finalizes(self) -> bool:
        """Whether no thread runs Python: the interpreter frees what it has."""
        return "<no Python frame>" in self.text and not _FRAME.search(self.text)


def _main_thread(text: str) -> list[re.Match[str]]:
    """Return the frames of the thread that runs the user's file, innermost first."""
    threads = [list(_FRAME.finditer(part)) for part in _THREAD.split(text)]
    mains = [frames for frames in threads if any(map(_enters, frames))]
    return mains[-1] if mains else (threads[-1] if threads else [])


def _enters(frame: re.Match[str]) -> bool:
    return frame["file"].endswith(_ENTRIES)


def _inside(frame: re.Match[str]) -> bool:
    """Return whether a frame is of an operation of a framework."""
    return _framework().search(frame["file"]) is not None


def parse(text: str, script: str = "") -> Stack:
    """Parse one dump."""
    frames = _main_thread(text)
    users = [frame for frame in frames if is_users(frame["file"], script)]
    if not users:
        return Stack(text, None, waits=False)
    # A framework may lie anywhere on `PYTHONPATH`, where what is not installed is the user's.
    inner = next((frame for frame in users if not _inside(frame)), users[0])
    waits = any(map(_inside, frames[: frames.index(inner)]))
    at = f"{Path(inner['file']).name}:{inner['line']} in {inner['function']}"
    frame = Frame(inner["file"], int(inner["line"]), inner["function"])
    return Stack(text, at, waits=waits, frame=frame)


def positions(
    stacks: Mapping[str, Stack | None],
    states: Mapping[str, str],
    no_stack: Mapping[str, Whereabouts] | None = None,
) -> tuple[Position, ...]:
    """Return where each task is, the tasks that hold up the others first."""
    order = sorted(stacks, key=lambda task: _waits(stacks[task]))
    known = {
        task: Position(task, why)
        for task, why in (no_stack or {}).items()
        if states.get(task) != "T"
    }
    return tuple(
        known.get(task) or _position(task, stacks[task], states.get(task, "")) for task in order
    )


def _waits(stack: Stack | None) -> bool:
    return stack is not None and stack.waits


def _position(task: str, stack: Stack | None, state: str = "") -> Position:
    """Return where a task is, from its stack and the state of its process."""
    if state == "T":
        return Position(task, Whereabouts.STOPPED)
    if stack is None:
        return Position(task, Whereabouts.NO_ANSWER)
    if stack.at is None:
        return Position(task, Whereabouts.NO_USER_CODE)
    inside = Whereabouts.IN_FRAMEWORK if stack.waits else Whereabouts.IN_USER_CODE
    return Position(task, inside, stack.at)
