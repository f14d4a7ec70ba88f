"""The first failure of an attempt, found among the exits of its tasks, and its kind.

The earliest failure is the cause, by the monotonic clock of the machine on
which it happened. But if a task reports that another one is gone, its failure is
only a consequence, however early it is reported. If all failures are
consequences, the cause is the task that they blame, although it did not fail
itself: it stopped responding, or it finished while the others still needed it. If its
machine had not answered, or that of a task that failed, then the machine or its link is the cause.
If two tasks on different machines blame each other, the cause is the link between these.
"""

from __future__ import annotations

import re
import signal
from collections import Counter
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from mwmagic.frameworks import collected, either
from mwmagic.gang import FailureKind
from mwmagic.logs.noise import Noise
from mwmagic.logs.tracebacks import Ours, find, origins, raised_at, reported
from mwmagic.model.findings import Cause, Finding, Location, Origin, Peer, Symptom
from mwmagic.model.variables import ANNOUNCED

from .known import recognise
from .table import AT_LINES, KNOWN

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mwmagic.logs.tracebacks import Failure, Frame

__all__ = ["Exit", "diagnose", "involves_others", "is_consequence", "kind"]

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


LOG_LINES = 12
"""How many lines from the end of the log a cause shows."""

UNANSWERED_SECONDS = 1.0
"""How long a machine takes to answer, at least, when its link may make its tasks fail."""

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
    silent = max(exits, key=lambda end: end.unanswered)
    if silent.unanswered >= UNANSWERED_SECONDS and (
        guilty is None or _may_be_cut_off(guilty, consequences)
    ):
        return _cut_off(silent, case)
    if guilty is None and (pair := _each_other(case)):
        return _lost_each_other(*pair, case)
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
    name = _accused(consequences, _leader([*consequences, *not_failed]))
    named = [end for end in not_failed if end.task == name]
    early = [end for end in not_failed if end.code == 0 and end.time <= consequences[0].time]
    return next(iter([*named, *early]), None)


def _may_be_cut_off(end: Exit, consequences: Iterable[Exit]) -> bool:
    """Return whether a silent machine explains failures better than a task that did not fail."""
    if end.code != 0:
        return not end.stopped
    # It had finished: the others may have missed its last words.
    silent = any(_silence().search(text) for one in consequences for text in _texts(one))
    return silent and end.unanswered >= UNANSWERED_SECONDS


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


def _cut_off(end: Exit, case: _Case) -> Cause:
    """Return the cause if it is a machine that did not answer."""
    tasks = tuple(one.task for one in case.exits if one.away == end.away)
    seconds = end.unanswered
    finding = Finding(Symptom.CUT_OFF, end.task, host=end.away, seconds=seconds, tasks=tasks)
    cause = _cause(end, finding, (finding,), case)
    return replace(cause, consequences=tuple(one.task for one in case.consequences))


def _each_other(case: _Case) -> tuple[Exit, Exit] | None:
    """Return the first two tasks that failed on different machines and blame each other."""
    leader = _leader(case.exits)
    failed = {end.task: end for end in case.consequences}
    for end in case.consequences:
        for other in map(failed.get, sorted(_blamed_by(end, leader))):
            if other and other.away != end.away and end.task in _blamed_by(other, leader):
                return end, other
    return None


def _lost_each_other(end: Exit, other: Exit, case: _Case) -> Cause:
    """Return the cause if it is the link between two tasks."""
    finding = Finding(Symptom.LOST_EACH_OTHER, end.task, peer=other.task)
    cause = _cause(end, finding, (finding,), case)
    others = tuple(name for name in cause.consequences if name != other.task)
    return replace(cause, where=end.where, consequences=others)


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


PYTHON_ERRORS = ("BrokenPipeError", "ConnectionRefusedError", "ConnectionResetError")
"""Python's own errors with the text of a consequence: they come from the user's connections."""

PERMANENT = ("SyntaxError", "IndentationError", "TabError", "ImportError", "ModuleNotFoundError")
"""Exceptions that would be raised again by the next attempt."""


@cache
def _consequence() -> re.Pattern[str]:
    return either(lambda one: one.consequences, re.IGNORECASE)


@cache
def _silence() -> re.Pattern[str]:
    return either(lambda one: one.silences)


@cache
def _mismatch() -> re.Pattern[str]:
    return either(lambda one: one.mismatches)


@cache
def _port_taken() -> re.Pattern[str]:
    return either(lambda one: one.port_taken)


@cache
def _blames_leader() -> re.Pattern[str]:
    return either(lambda one: one.blames_leader)


@cache
def _blames() -> tuple[list[re.Pattern[str]], list[re.Pattern[str]]]:
    """Return the patterns with which errors name responsible tasks, and responsible ranks."""
    tasks = collected(lambda one: one.blames)
    ranks = collected(lambda one: one.blames_ranks)
    return [re.compile(text, re.MULTILINE) for text in tasks], [re.compile(text) for text in ranks]


def _texts(end: Exit) -> tuple[str, ...]:
    """Return the last output of a task: its exceptions, or what its native code printed.

    A program may catch an exception, print it and exit.
    """
    return (*end.raised, end.tail) if end.types <= {"SystemExit"} else end.raised


def is_consequence(end: Exit) -> bool:
    """Return whether an exit only shows that another task is gone."""
    if end.unknown or end.code == 0:
        return False
    # A task that has reported its exception may be killed before it exits.
    if end.signal not in (None, 6) and not end.report:
        return False
    if end.types.intersection(PYTHON_ERRORS):
        return False
    texts = _texts(end)
    return any(map(_consequence().search, texts)) and not any(map(_mismatch().search, texts))


def kind(end: Exit) -> FailureKind:
    """Return what kind of failure an exit is."""
    if end.ended:
        return FailureKind.CONSEQUENCE
    if end.signal is None and _port_taken().search(end.tail):
        return FailureKind.PORT
    if end.types.intersection(PERMANENT):
        return FailureKind.PERMANENT
    if end.unknown and not end.lost:
        return FailureKind.PERMANENT
    return FailureKind.CONSEQUENCE if is_consequence(end) else FailureKind.PRIMARY


def _named(end: Exit) -> set[str]:
    """Return the tasks that an exit's output blames."""
    text = "\n".join(_texts(end))
    tasks, ranks = _blames()
    named = {f"{job}:{index}" for one in tasks for job, index in one.findall(text)}
    listed = [found for one in ranks for found in one.findall(text)]
    return named | {f"worker:{rank}" for found in listed for rank in found.split()}


def _loses_leader(end: Exit) -> bool:
    """Return whether an exit's output says that the leader cannot be reached."""
    return any(map(_blames_leader().search, _texts(end)))


def _blamed_by(end: Exit, leader: str) -> set[str]:
    """Return the tasks whose loss an exit reports, by name or as the leader's."""
    return _named(end) | ({leader} if _loses_leader(end) else set())


def _accused(consequences: Sequence[Exit], leader: str) -> str | None:
    """Return the task that failures blame, unless it is one of those that failed."""
    names = {end.task for end in consequences}
    votes = Counter(name for end in consequences for name in sorted(_named(end) - names))
    if votes:
        return votes.most_common(1)[0][0]
    if leader not in names and any(map(_loses_leader, consequences)):
        return leader
    return None
