"""Hosts in words: the tasks on them, what was fetched from one, and which cannot connect."""

from __future__ import annotations

import time
from collections import Counter
from operator import itemgetter
from typing import TYPE_CHECKING

from mwmagic.model import machine
from mwmagic.model.status import TaskState
from mwmagic.model.values import counted

from .failure import names_words
from .file import size_words
from .run import clock, progress_words, task_words, tone

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mwmagic.model.machine import Fetch, HostStatus, MachineStatus, Obstacle
    from mwmagic.model.status import Reached, TaskStatus

__all__ = [
    "apart_words",
    "crowded_words",
    "fetch_words",
    "host_progress",
    "host_tone",
    "host_usage",
    "host_words",
    "idle_words",
    "interface_words",
    "jobs_words",
    "left_words",
    "reach_words",
]

LONGEST_SECONDS = 1e9
"""A longer time left is one that a scheduler made up."""

_ENDS = {"good": "finished", "bad": "failed", "off": "ended"}
"""The tones of tasks that have ended, as words."""

_TONES = ("bad", "wait", "run", "absent", "off", "good")
"""The tones of tasks: a host has the first that one of its tasks has."""

FINAL_SECONDS = 120.0
"""The time left from which on seconds are shown; before that they only make a page change."""


def host_tone(host: HostStatus, tasks: Mapping[str, TaskStatus]) -> str:
    """Classify a host's state as its tasks' are: bad if it is lost, or a task failed."""
    found = {tone(task) for task in tasks.values()}
    return "bad" if host.lost else next((one for one in _TONES if one in found), "absent")


def host_words(host: HostStatus, tasks: Mapping[str, TaskStatus]) -> str:
    """Say in a few words how a host and its tasks are: ``8 tasks: 7 training, 1 failed``."""
    number = counted(len(tasks), "task")
    if host.lost:
        return f"lost with {number}" + (f": {host.why}" if host.why else "")
    counts = Counter(map(_state, tasks.values()))
    told = [f"{count} {state}" for state, count in counts.most_common()]
    return f"{number}: {', '.join(told)}" if len(told) > 1 else " ".join([number, *counts])


def _state(task: TaskStatus) -> str:
    """Say in a word or two where a task is, as many others may be."""
    if task.state is TaskState.ENDED:
        return _ENDS[tone(task)]
    if task.state is TaskState.STARTING:
        return "starting"
    return "waiting" if task.waits else task_words(task)


def host_progress(tasks: Mapping[str, TaskStatus]) -> str:
    """Say how far a host's tasks are: ``epoch 2/3 · step 40-45/70``."""
    known = [task.progress for task in tasks.values() if task.progress is not None]
    if not known:
        return ""
    first, last = min(known, key=_reached), max(known, key=_reached)
    if progress_words(first) == progress_words(last):
        return progress_words(last)
    if (first.epoch, first.steps) == (last.epoch, last.steps) and first.step is not None:
        return progress_words(last).replace(f"step {last.step}", f"step {first.step}-{last.step}")
    return f"{progress_words(first)} to {progress_words(last)}"


def _reached(progress: Reached) -> tuple[int, int]:
    return progress.epoch or 0, progress.step or 0


def host_usage(host: HostStatus) -> str:
    """Describe a machine: load and memory while it is there, GPUs, the job and its time left."""
    gpus = ", ".join(f"{count} {name}" for name, count in host.gpus.items())
    used = [] if host.lost else [_load(host), _memory(host)]
    told = [*used, gpus, _job_words(host.job, host.until)]
    return " · ".join(filter(None, told))


def _load(host: HostStatus) -> str:
    of = f" of {host.processors}" if host.processors else ""
    return "" if host.load is None else f"load {host.load:.1f}{of}"


def _memory(host: HostStatus) -> str:
    of = size_words(host.memory) if host.memory else ""
    if host.used is None:
        return of
    used = size_words(host.used)
    unit = of.partition(" ")[2]
    used = used.removesuffix(f" {unit}") if unit else used
    return f"{used} of {of}" if of else used


def _job_words(job: str, until: float | None) -> str:
    """Name a scheduler's job, and say how much time it has left: ``job 7, 37 min left``."""
    name = f"job {job}" if job else ""
    return ", ".join(filter(None, [name, "" if until is None else left_words(until)]))


def jobs_words(machines: Iterable[MachineStatus]) -> str:
    """Name the jobs of the machines that are not lost: ``job 7, 37 min left``."""
    jobs = {one.job: one.until for one in machines if one.job and not one.lost}
    return "; ".join(_job_words(*one) for one in jobs.items())


def crowded_words(machines: Iterable[MachineStatus]) -> str:
    """Say what it means that tasks share CPUs, on the machine where most do."""
    found = [
        (len(one.tasks) / one.machine.processors, one.machine.processors, one)
        for one in machines
        if one.machine and not one.machine.gpus and len(one.tasks) > one.machine.processors > 0
    ]
    if not found:
        return ""
    share, cpus, one = max(found, key=itemgetter(0))
    tasks = counted(len(one.tasks), "task")
    return (
        f"{tasks} share {counted(cpus, 'CPU')} on {one.name} and take turns: their numbers are "
        f"right, but a step takes {share:.1f} times as long as with a CPU for each, or longer"
    )


def idle_words(since: float) -> str:
    """Say since when nothing has run, given in seconds of the wall clock."""
    then = time.localtime(since)
    today = time.strftime("%F", then) == time.strftime("%F")
    return time.strftime("idle since %H:%M" if today else "idle since %F %H:%M", then)


def left_words(until: float) -> str:
    """Say how much time is left until a moment, in seconds of the wall clock."""
    seconds = min(max(until - time.time(), 0.0), LONGEST_SECONDS)
    if seconds < FINAL_SECONDS:
        return f"{clock(seconds)} left"
    hours, minutes = divmod(int(seconds // 60), 60)
    return (f"{hours} h " if hours else "") + f"{minutes} min left"


def fetch_words(fetch: Fetch) -> str:
    """Return what was fetched, and where it is."""
    if fetch.state == "here":
        return f"{fetch.to} is here already: {fetch.task} shares this disk"
    files = f"{fetch.files} files, " if fetch.files != 1 else ""
    return f"fetched {fetch.path} of {fetch.task} to {fetch.to} ({files}{size_words(fetch.size)})"


GROUPS_LIMIT = 3
"""How many groups of pairs are named."""

_REASONS = {
    machine.UNRESOLVED: "{source} does not know the name {name} ({error})",
    machine.SILENT: "nothing answers in time: a firewall that drops packets, or another network",
    machine.REFUSED: "{error}, although {target} listens there: a firewall, or the address of "
    "another machine",
    machine.UNROUTABLE: "{error}: another network, or a firewall",
    machine.STRANGER: "what answers there is not {target} but a proxy or another machine",
    machine.FAILED: "{error}",
}
_LOOP = (
    "on {source} the name {name} means {at}, which is {source} itself; Debian's installer writes "
    "such a line into /etc/hosts"
)


def reach_words(obstacles: Sequence[Obstacle], *, named: bool) -> str:
    """Say which machines cannot connect to each other, why, and what to do."""
    return "\n".join([*_apart(obstacles), _step(obstacles, named=named)])


def apart_words(obstacles: Sequence[Obstacle]) -> str:
    """Say in a line which machines of a run cannot connect to each other any more, and why."""
    return "; ".join(_apart(obstacles))


def _apart(obstacles: Sequence[Obstacle]) -> list[str]:
    groups = list(_groups(obstacles))
    lines = [_group_words(group) for group in groups[:GROUPS_LIMIT]]
    left = sum(map(len, groups[GROUPS_LIMIT:]))
    return [*lines, *([f"and {left} more pairs"] if left else [])]


def _groups(obstacles: Sequence[Obstacle]) -> Iterable[list[Obstacle]]:
    """Yield the pairs that fail alike and have a machine in common, the most first."""
    left = list(obstacles)
    while left:
        counts = Counter(key for one in left for key in _keys(one))
        best = counts.most_common(1)[0][0]
        yield [one for one in left if best in _keys(one)]
        left = [one for one in left if best not in _keys(one)]


def _keys(one: Obstacle) -> tuple[tuple[str, ...], ...]:
    """Return the groups that a pair may be named in."""
    return ("to", one.target, one.why, str(one.loops)), (
        "from",
        one.source,
        one.why,
        str(one.loops),
    )


def _group_words(group: Sequence[Obstacle]) -> str:
    """Say which pairs of a group cannot connect, and why the first cannot."""
    one = group[0]
    sources = names_words(dict.fromkeys(each.source for each in group))
    targets = names_words({f"{each.target} at {each.address}": None for each in group})
    template = _LOOP if one.loops and one.why != machine.UNRESOLVED else _REASONS[one.why]
    host = one.address.rpartition(":")[0]
    reason = template.format(
        source=one.source, target=one.target, name=host, at=", ".join(one.at), error=one.error
    )
    return f"{sources} cannot connect to {targets}: {reason}"


def _step(obstacles: Sequence[Obstacle], *, named: bool) -> str:
    """Say what to do."""
    one = obstacles[0]
    known = next((own[0] for own in one.interfaces.values() if own), "ADDRESS")
    write = f"write the address to use (--hosts {one.target}={known}), " if named else ""
    has = f"; {one.target} has {interface_words(one.interfaces)}" if one.interfaces else ""
    return (
        "The tasks must reach each other at ports above 32768. Have them opened, "
        f"{write}or choose the network with --interface{has}"
    )


def interface_words(interfaces: Mapping[str, Sequence[str]]) -> str:
    """List network interfaces with their addresses: ``eth0 (10.0.0.2), ib0 (10.1.0.2)``."""
    return ", ".join(f"{name} ({', '.join(own)})" for name, own in interfaces.items()) or "none"
