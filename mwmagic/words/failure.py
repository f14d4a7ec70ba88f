"""Failures, notices and stalls in words, and lists of tasks and names."""

from __future__ import annotations

import math
import re
import signal
import time
from typing import TYPE_CHECKING

from mwmagic.model.findings import Symptom, Whereabouts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from mwmagic.diagnosis.known import KnownFailure
    from mwmagic.model.findings import (
        Cause,
        Finding,
        Location,
        Origin,
        Peer,
        Position,
        Remark,
        Stall,
    )

__all__ = [
    "advice",
    "ended",
    "explain",
    "headline",
    "listed",
    "names_words",
    "observed",
    "position",
    "remark",
    "sentence",
    "span",
    "stalled",
]

_EARLY = (Symptom.FINISHED_EARLY, Symptom.FINISHED_DURING_SAVE)

CONSEQUENCE_TASKS = 8
"""The most tasks that a sentence names."""

SPAN_TASKS = 2
"""The most tasks in a row that are named one by one where they are on one machine."""

_GAP = re.compile(r"\{(\w+)\}")


# What was observed.


def _signal(number: int | None) -> str:
    try:
        return signal.Signals(number or 0).name
    except ValueError:
        return f"signal {number}"


def _detailed(text: str, finding: Finding) -> str:
    text += " at your request" if finding.requested else ""
    return f"{text}; {finding.detail}" if finding.detail else text


def _agent_lost(finding: Finding, whose: str = "its") -> str:
    agent = f"{whose} agent" + (f" on {finding.host}" if finding.host else "")
    return f"ended with {agent}, {finding.detail}" if finding.detail else f"lost with {agent}"


def _why(finding: Finding) -> str:
    return f": {finding.detail}" if finding.detail else ""


def _host_lost(finding: Finding) -> str:
    return (
        f"host {finding.host or '(unknown)'} was lost with {span(finding.tasks or (finding.task,))}"
    )


def _cut_off(finding: Finding) -> str:
    tasks = span(finding.tasks or (finding.task,))
    seconds = finding.seconds or 0.0
    return f"host {finding.host or '(unknown)'} with {tasks} did not answer for {seconds:.1f} s"


def _job_ends(finding: Finding) -> str:
    job = f"job {finding.job}" if finding.job else "the scheduler's job"
    try:
        when = time.strftime("at %H:%M:%S", time.localtime(finding.until or math.nan))
    except (ValueError, OverflowError, OSError):  # as no clock shows it
        when = "soon"
    return f"{job} reaches its time limit {when}, and ends what runs on its machines"


def _before_strategy(finding: Finding) -> str:
    at = f" (it is {_at(finding.at)})" if finding.at else ""
    return f"has not reached the strategy, where {finding.peer} waits for it{at}"


def _at(line: str | None) -> str:
    return f"at {line}" if line else "outside your code"


def _keeps_waiting(finding: Finding) -> str:
    each = [f"{one.task} is {_at(one.at)}" for one in finding.positions]
    verb = "keeps" if len(each) == 1 else "keep"
    return f"{listed(each)} and {verb} the others waiting"


def _different_places(finding: Finding) -> str:
    each = [f"{one.task} {_at(one.at)}" for one in finding.positions]
    return f"all wait for each other in different places: {listed(each)}"


def _cold(why: str) -> str:
    return f"workers start cold: {why}; the next run of this program is warm"


_OBSERVED: dict[Symptom, Callable[[Finding], str]] = {
    Symptom.UNKNOWN: lambda _: "ended for an unknown reason",
    Symptom.NOT_STARTED: lambda f: (
        f"could not be started: {f.detail}"
        if f.detail
        else "could not be started (no reason given)"
    ),
    Symptom.AGENT_LOST: _agent_lost,
    Symptom.HOST_LOST: lambda f: " ".join(filter(None, ["lost with its host", f.host])) + _why(f),
    Symptom.EXITED: lambda f: _detailed(f"exited with code {f.code}", f),
    Symptom.LACKS_NAME: lambda f: _detailed(f"exited with code {f.code}", f),
    Symptom.KILLED: lambda f: _detailed(f"killed by {_signal(f.signal)}", f),
    Symptom.OUT_OF_MEMORY: lambda f: _detailed("killed by the kernel's out-of-memory killer", f),
    Symptom.STALLED: lambda f: _detailed(
        f"made no progress for {f.seconds or 0.0:.0f} s, and was ended (--on-stall restart)", f
    ),
    Symptom.SILENT: lambda _: "stopped responding to the others, and was ended",
    Symptom.CUT_OFF: lambda f: (
        f"was cut off: its host {f.host or '(unknown)'} did not answer for {f.seconds or 0.0:.1f} s"
    ),
    Symptom.LOST_EACH_OTHER: lambda f: (
        f"and {f.peer or 'another task'} lost each other: each reports that the other is gone"
    ),
    Symptom.STOPPED_BY_SIGNAL: lambda _: (
        "was stopped by a signal, no longer responded to the others, and was ended"
    ),
    Symptom.FINISHED_EARLY: lambda f: f"finished while {f.peer or 'another task'} still needed it",
    Symptom.FINISHED_DURING_SAVE: lambda f: (
        f"finished while {f.peer or 'another task'} was saving, which needs every task"
    ),
    Symptom.ALONE: lambda _: "trained, and never started a server for the others",
    Symptom.OUTSIDE_SCOPE: lambda _: "trained a model that is not of its strategy",
    Symptom.ELSEWHERE: lambda f: f"listened at {f.address}, which was not its address",
    Symptom.LOGGED: lambda _: "reported it in its log",
    Symptom.JOB_ENDS: _job_ends,
    Symptom.LOG_UNWRITTEN: lambda f: (
        f"could not write its log on {f.host or 'its host'} to the end ({f.detail or 'no space'}); "
        "its lines came here all the same"
    ),
    Symptom.LOG_CUT: lambda f: (
        f"may have printed more than {f.detail or 'its log'} holds: its last lines may be missing, "
        f"as the agent on {f.host or 'this machine'} was lost"
    ),
    Symptom.HOST_UNUSED: lambda f: (
        f"a restart could not use {f.host or 'a machine'}: {f.detail or 'it did not answer'}"
    ),
    Symptom.COLD_VARIABLE: lambda f: _cold(
        f"the warm process did its imports with another value of {f.detail or '...'}"
    ),
    Symptom.COLD_UNKNOWN: lambda f: (
        f"workers start cold: {f.at} may set {f.detail or 'variables'}, which imports read; set it "
        "to a literal before any import, or give it with --env, and they start warm"
    ),
    Symptom.COLD_INSTALLED: lambda _: _cold("packages were installed or removed meanwhile"),
    Symptom.COLD_STOPPED: lambda _: _cold("a signal had stopped the warm process"),
    Symptom.COLD_FAILED: lambda f: f"workers start cold: {f.detail or 'there is no warm process'}",
    Symptom.COLD_FILE: lambda f: _cold(f"{f.detail or 'a file'} is not as it was read"),
    Symptom.COLD_MODULE: lambda f: (
        "workers start cold: modules beside the program have the names of some that the warm "
        f"process has imported ({f.detail or '...'}); rename them, and workers start warm"
    ),
    Symptom.LEFT_OUT: lambda f: (
        f"--preload names modules that each worker has to import itself: {f.detail or '...'}"
    ),
    Symptom.IMPORTED_LONG: lambda f: (
        f"spent {f.seconds or 0.0:.1f} s on imports; declare the cluster with --preload "
        f"{f.detail or '...'}, and its workers start with these imported"
    ),
    Symptom.WAITS_FOR_MISSING_TASK: lambda f: f"waits for {f.peer}, which is not in this cluster",
    Symptom.TAKES_ANOTHERS_ADDRESS: lambda f: f"listens at the address of {f.peer}",
    Symptom.SECOND_PROCESS: lambda _: "has a second process, which tries to join as the same task",
    Symptom.BEFORE_STRATEGY: _before_strategy,
    Symptom.UNREACHABLE: lambda f: f"cannot reach {f.peer}, which waits for it",
    Symptom.HOSTS_APART: lambda f: (
        f"{f.detail or 'hosts cannot connect to each other'}; a restart uses another host "
        "instead of one of them, if there is one"
    ),
    Symptom.WAITS_IN_SAVE: lambda f: f"waits for the others in a save, {_at(f.at)}",
    Symptom.KEEPS_OTHERS_WAITING: _keeps_waiting,
    Symptom.DIFFERENT_PLACES: _different_places,
    Symptom.DOES_NOT_END: lambda _: "has finished its program, but its interpreter does not end",
}


def observed(finding: Finding) -> str:
    """Say what was observed of a task, without its name: ``killed by SIGKILL``."""
    return _OBSERVED[finding.symptom](finding)


def sentence(finding: Finding) -> str:
    """Say what was observed, with the task's name."""
    return f"{finding.task} {observed(finding)}".strip()


_EXITS = (Symptom.EXITED, Symptom.LACKS_NAME, Symptom.KILLED, Symptom.OUT_OF_MEMORY)


def ended(finding: Finding, *, ours: bool = False) -> str:
    """Say briefly how a task's process ended."""
    exited = finding.symptom in _EXITS
    if exited and finding.detail:
        return finding.detail
    if finding.symptom is Symptom.EXITED and finding.code == 0:
        return "finished"
    return "ended" if ours and exited else observed(finding)


# Known failures.


def _fill(text: str, finding: Finding, gaps: Sequence[str]) -> str:
    """Fill the gaps of a text."""
    values = {**finding.given, **{str(number): gap for number, gap in enumerate(gaps)}}
    return _GAP.sub(lambda gap: str(values.get(gap[1], "...")), text)


def _known(known: KnownFailure | None, cause: Cause) -> list[str]:
    if known is None:
        return []
    meaning, remedy = advice(cause)
    edited = _edited(known, cause.where)
    return [f"  {meaning}", f"  Try: {remedy}", *edited, f"  See {known.link}"]


def advice(cause: Cause) -> tuple[str, str]:
    """Return what a known failure means and what to try; both are empty of another one."""
    known = _entry(cause.known or "")
    if known is None:
        return "", ""
    texts = (known.meaning, known.advice(cause.options))
    meaning, remedy = (_fill(text, cause.finding, cause.gaps) for text in texts)
    return meaning, f"{remedy}."


def _edited(known: KnownFailure, where: Location | None) -> list[str]:
    """Return the user's line as it should be, if that is known."""
    if known.edit is None or where is None:
        return []
    old, new = known.edit
    edited, found = re.subn(rf"{re.escape(old)}(?!\w)", new, where.source)
    if not found:
        return []
    return [f"  Line {where.line or '?'} should read:", f"    {edited}"]


def headline(cause: Cause) -> str:
    """Say in a line which task failed first, and how, or which machine was lost."""
    finding = cause.finding
    if finding.symptom is Symptom.HOST_LOST:
        return _host_lost(finding) + _why(finding)
    if finding.symptom is Symptom.CUT_OFF:
        return _cut_off(finding)
    if finding.symptom is Symptom.AGENT_LOST and len(finding.tasks) > 1:
        return f"{span(finding.tasks)} {_agent_lost(finding, 'their')}"
    return f"{cause.task or 'a task'} {observed(finding)}"


def _entry(name: str) -> KnownFailure | None:
    """Return a known failure; a notebook that loads the magics has no need of the table yet."""
    from mwmagic.diagnosis.table import ENTRIES

    return ENTRIES.get(name)


def explain(cause: Cause) -> list[str]:
    """Say everything about a failure in several lines, the most useful first."""
    known = _entry(cause.known or "")
    exception = f": {cause.exception}" if cause.exception else ""
    return [
        *_indented(headline(cause) + exception),
        *_where(cause.where, f"{cause.finding.peer} was at" if cause.symptom in _EARLY else "at"),
        *(line for origin in cause.origins for line in _origin(origin)),
        *_others(cause.others),
        *_known(known, cause),
        *_consequences(cause),
        *_log(cause),
    ]


def _indented(text: str) -> list[str]:
    """Return the lines of a text, those after the first indented."""
    first, *others = text.split("\n")
    return [first, *(f"    {line}" for line in others)]


def _origin(origin: Origin) -> list[str]:
    how = "was raised while handling" if origin.handled else "came from"
    return [*_indented(f"  It {how} {origin.exception}"), *_where(origin.where, "at")]


def _others(others: Sequence[Peer]) -> list[str]:
    """Say where other tasks were, those at the same line together."""
    places: dict[Location | None, list[str]] = {}
    for peer in others:
        places.setdefault(peer.where, []).append(peer.task)
    lines: list[str] = []
    for where, tasks in places.items():
        verb = "was" if len(tasks) == 1 else "were"
        had = [f"  {listed(tasks)} had finished"]
        lines += _where(where, f"{listed(tasks)} {verb} at") if where else had
    return lines


def _where(where: Location | None, at: str) -> list[str]:
    if not where:
        return []
    cell = f" ({where.cell})" if where.cell else ""
    line = f"{where.file or '?'}, line {where.line or '?'}{cell}"
    source = [f"    {where.source}"] if where.source else []
    return [f"  {at} {line}, in {where.function or '?'}", *source]


def _consequences(cause: Cause) -> list[str]:
    if not cause.consequences:
        return []
    return [f"  {listed(cause.consequences)} failed as a consequence."]


def span(tasks: Sequence[str]) -> str:
    """Name tasks, those in a row by the first and the last: ``worker:8 to worker:15``."""
    if len(tasks) > SPAN_TASKS and _in_a_row(tasks):
        return f"{tasks[0]} to {tasks[-1]}"
    return listed(tasks)


def _in_a_row(tasks: Sequence[str]) -> bool:
    kind, _, first = tasks[0].rpartition(":")
    start = int(first) if first.isdecimal() else 0
    return all(name == f"{kind}:{start + at}" for at, name in enumerate(tasks))


def listed(tasks: Sequence[str]) -> str:
    """Name tasks, but not more than fit into a sentence."""
    more = len(tasks) - CONSEQUENCE_TASKS
    return ", ".join(tasks[:CONSEQUENCE_TASKS]) + (f" and {more} more" if more > 0 else "")


def _log(cause: Cause) -> list[str]:
    if cause.exception or not cause.log:
        return []
    return [f"  The last lines that {cause.task} printed:", *(f"    {line}" for line in cause.log)]


# What goes wrong without ending a run.


def remark(found: Remark) -> str:
    """Say in a line what the user should know, and what to try."""
    known = _entry(found.known)
    if known is None:
        return f"{sentence(found.finding)}."
    texts = (known.meaning, known.remedy)
    meaning, remedy = (_fill(text, found.finding, found.gaps) for text in texts)
    return f"{listed(found.tasks)}: {meaning} Try: {remedy}."


# Where tasks are.

_WHEREABOUTS = {
    Whereabouts.STOPPED: "is stopped by a signal (SIGSTOP); SIGCONT resumes it",
    Whereabouts.NO_ANSWER: "does not answer (in an uninterruptible system call?)",
    Whereabouts.NOT_BEGUN: "is only starting, and runs none of your code yet",
    Whereabouts.NO_HANDLER: "cannot be asked where it is: it is only starting, waits for a "
    "signal (signal.pause), became another program (os.exec), blocks or handles all signals, or "
    "closed all files",
    Whereabouts.NO_USER_CODE: "runs none of your code",
    Whereabouts.IN_FRAMEWORK: "waits inside an operation of the framework, at {at}",
    Whereabouts.IN_USER_CODE: "is at {at}, in Python code rather than in the framework",
}


def position(where: Position) -> str:
    """Say in a line where a task is."""
    return f"{where.task} {_WHEREABOUTS[where.whereabouts].format(at=where.at)}"


def stalled(stall: Stall) -> str:
    """Say in a line why a run makes no progress, or else where its first task is."""
    if stall.why is not None:
        return f"stalled: {sentence(stall.why.finding)}"
    return f"stalled: {position(stall.positions[0])}" if stall.positions else "stalled"


NAMED_LIMIT = 6
"""How many names are listed."""


def names_words(names: Iterable[str]) -> str:
    """List names: ``a, b and c``; of very many only the first, and the number of others."""
    every = list(names)
    told = every if len(every) <= NAMED_LIMIT else every[: NAMED_LIMIT - 1]
    left = len(every) - len(told)
    *first, last = [*told, *([f"{left} others"] if left else [])]
    return " and ".join([", ".join(first), last]) if first else last
