"""A run's status as a page shows it: a header, a row for each task, and one for each host.

Among many tasks on several hosts, those that need attention are shown, the others folded.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mwmagic.experiments.series import BY_TIME
from mwmagic.record import inside
from mwmagic.words.file import size_words
from mwmagic.words.host import host_progress, host_tone, host_usage, host_words
from mwmagic.words.live import ranks_words
from mwmagic.words.run import (
    attempt_words,
    axis,
    blame,
    buttons,
    fraction,
    left,
    metrics,
    progress_words,
    remarks,
    run_tone,
    setbacks,
    setbacks_title,
    spent,
    task_words,
    tone,
    words,
)

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence

    from mwmagic.model.machine import HostStatus
    from mwmagic.model.status import Reached, RunStatus, TaskStatus

__all__ = [
    "FOLDED_SETBACKS_COUNT",
    "EqualMetrics",
    "HostGroup",
    "Load",
    "View",
    "folded",
    "grouped",
    "header",
    "host_row",
    "row",
]

FOLDED_SETBACKS_COUNT = 3
"""More failed attempts than these are folded; plain text has the latest of them."""

MOST_UNFOLDED_TASKS = 16
"""The most tasks of a run on several hosts that are all shown; those of more are summarised."""

MOST_RAISED_TASKS = 8
"""The most tasks that are shown although their hosts are folded."""


@dataclass(frozen=True)
class HostGroup:
    """A host and its tasks."""

    host: HostStatus
    tasks: dict[str, TaskStatus]
    raised: dict[str, TaskStatus]
    """The tasks that need attention."""
    folded: bool
    """Whether the others are not shown at first."""

    @property
    def shown(self) -> dict[str, TaskStatus]:
        """The tasks that are shown at first."""
        return self.raised if self.folded else self.tasks


def folded(run: RunStatus) -> bool:
    """Return whether a run's hosts show only some of their tasks at first."""
    return len(run.hosts) > 1 and len(run.tasks) > MOST_UNFOLDED_TASKS


def grouped(run: RunStatus) -> list[HostGroup]:
    """Return the groups of a run whose tasks are on several hosts; none for any other.

    A damaged record may name other tasks on its hosts than it has.
    """
    placed = [name for host in run.hosts for name in host.tasks]
    if sorted(placed) != sorted(run.tasks):
        return []
    needed, brief = _raised(run), folded(run)
    groups = []
    for host in run.hosts:
        tasks = {name: run.tasks[name] for name in host.tasks}
        raised = {name: task for name, task in tasks.items() if name in needed}
        groups.append(HostGroup(host, tasks, raised, folded=brief))
    return groups


def _raised(run: RunStatus) -> set[str]:
    """Return the tasks that need attention: the culprit, a stall's, and others that failed.

    A host that was lost says so itself: its tasks have nothing to add.
    """
    lost = {name for host in run.hosts if host.lost for name in host.tasks}
    first = [run.cause.task if run.cause else None, run.stall.guilty if run.stall else None]
    failed = [name for name, task in run.tasks.items() if tone(task) == "bad"]
    found = [name for name in [*first, *failed] if name in run.tasks and name not in lost]
    return set(list(dict.fromkeys(found))[:MOST_RAISED_TASKS])


MOST_ROWS, MOST_CARDS = 8, 24
"""The most tasks shown as rows, and as cards; more are shown as tiles."""

_TIE = "\N{NO-BREAK SPACE}"
"""Keeps a metric's name and value on one line."""

_BLANK = "\N{FIGURE SPACE}"
"""As wide as a digit: what follows a number stays where it is when the number gets shorter."""

VALUE_WIDTH_CHARACTERS = 9
"""The width of a metric's value, such as ``1.234e-05``."""

LOAD_SECONDS = 2.0
"""Minimum time over which CPU load is measured; samples are a second apart."""


@dataclass(frozen=True)
class View:
    """What a page shows of a run."""

    run: RunStatus
    doing: str = ""
    """What a button is doing at the moment."""
    refusal: str = ""
    """Why the last button's action was refused."""
    stacks: str = ""
    """The stacks last collected, until their panel is closed; the first line is a title."""


class Load:
    """A task's CPU load, from the CPU time that it has used so far."""

    def __init__(self) -> None:
        self._since: tuple[float, float] | None = None
        self.share: float | None = None

    def add(self, cpu: float | None, time: float) -> None:
        """Add a sample: the CPU time used so far, and the time now, in seconds."""
        if cpu is None:
            self._since = self.share = None
        elif self._since is None or cpu < self._since[0]:
            self._since = (cpu, time)
        elif time - self._since[1] >= LOAD_SECONDS:
            self.share = (cpu - self._since[0]) / (time - self._since[1])
            self._since = (cpu, time)


def _usage(task: TaskStatus, share: float | None) -> str:
    """Describe a task's process: time in a cell or left, address, pid, CPU load and memory."""
    told = [
        spent(task),
        left(task),
        task.address,
        f"pid {task.pid}" if task.pid else "",
        "" if share is None else f"{100 * share:.0f} % CPU",
        size_words(task.memory) if task.memory else "",
    ]
    return " · ".join(filter(None, told))


class EqualMetrics:
    """The metrics of which all tasks have the same values, as in synchronous training.

    With cards, the metrics in `names` stand above them once.
    """

    def __init__(self) -> None:
        self.names: frozenset[str] = frozenset()
        self._different: frozenset[str] = frozenset()

    def update(self, run: RunStatus) -> None:
        """Compare what tasks have that are at the same step.

        Reports of one step arrive one after another: what is equal stays shared until it
        differs twice.
        """
        reached = _measured(run)
        values: dict[str, dict[object, set[str]]] = {}
        counts: Counter[str] = Counter()
        compared: set[str] = set()
        for one in reached.values():
            for name, value in metrics(one):
                at = values.setdefault(name, {})
                compared |= {name} if (one.epoch, one.step) in at else set()
                at.setdefault((one.epoch, one.step), set()).add(value)
                counts[name] += 1
        different = {name for name, at in values.items() if any(len(v) > 1 for v in at.values())}
        if run.over:  # nobody catches up any more
            different |= {name for name, at in values.items() if len(set().union(*at.values())) > 1}
        partial = {name for name, count in counts.items() if count < len(reached)}
        gone = partial | (different if run.over else different & self._different)
        self.names = (self.names | (compared - different)) - gone
        self._different = frozenset(different)

    def words(self, run: RunStatus) -> str:
        """Return the shared metrics of the task that is furthest."""
        reached = _measured(run)
        furthest = max(
            reached.values(), key=lambda one: (one.epoch or 0, one.step or 0), default=None
        )
        told = _values(pair for pair in metrics(furthest) if pair[0] in self.names)
        return told and f"[{ranks_words(reached)}]   {told}"


def _measured(run: RunStatus) -> dict[str, Reached]:
    """Return how far the tasks are that have metrics."""
    reached = {name: task.progress for name, task in run.tasks.items()}
    return {name: one for name, one in reached.items() if one is not None and one.metrics}


def _values(values: Iterable[tuple[str, str]]) -> str:
    return "   ".join(
        f"{name}{_TIE}{value:{_BLANK}<{VALUE_WIDTH_CHARACTERS}}" for name, value in values
    ).rstrip()


def row(
    task: TaskStatus, share: float | None = None, shared: Container[str] = ()
) -> dict[str, Any]:
    """Return what a page shows of a task, as JSON, rounded so that it changes less often."""
    part, kind = fraction(task), tone(task)
    return {
        "tone": kind,
        "state": task_words(task),
        "part": 1.0 if kind == "good" else part and round(part, 3),
        "progress": progress_words(task.progress),
        "metrics": _values(pair for pair in metrics(task.progress) if pair[0] not in shared),
        "usage": _usage(task, share),
        "axis": axis(task.progress),
        "log": task.log and inside(task.log),
    }


def host_row(group: HostGroup) -> dict[str, Any]:
    """Return what a page shows of a host, as JSON values."""
    host, tasks = group.host, group.tasks
    return {
        "tone": host_tone(host, tasks),
        "state": host_words(host, tasks),
        "progress": host_progress(tasks),
        "usage": host_usage(host),
        "raised": list(group.raised),
    }


def _actions(view: View) -> list[str]:
    """Return the ids of the buttons that are enabled."""
    if view.doing:
        return []
    return ["restart"] if view.run.over else ["stacks", "restart", "stop"]


def _size(run: RunStatus, groups: Sequence[HostGroup]) -> str:
    """Return the layout for the tasks that are shown together: all, or a host's."""
    several = [len(group.tasks) for group in groups] if folded(run) else []
    count = max(several, default=len(run.tasks))
    if count > MOST_CARDS:
        return "tiles"
    return "cards" if count > MOST_ROWS else "rows"


def header(view: View, shared: EqualMetrics | None = None) -> dict[str, Any]:
    """Return what a page shows of a run as a whole, as JSON values."""
    run = view.run
    groups = grouped(run)
    size = _size(run, groups)
    ranks = {name: rank for rank, name in enumerate(run.tasks)}
    return {
        "title": " · ".join(filter(None, [f"Run {run.number}", run.script, attempt_words(run)])),
        "tone": run_tone(run),
        "words": view.doing or words(run),
        "actions": _actions(view),
        "buttons": buttons(run),
        "over": run.over,
        "started": run.started,
        "ended": run.ended,
        "names": list(run.tasks),
        "timed": BY_TIME,
        "size": size,
        "shared": "" if shared is None or size == "rows" else shared.words(run),
        "hosts": [[group.host.name, [ranks[name] for name in group.tasks]] for group in groups],
        "folded": bool(groups) and folded(run),
        "cause": "\n".join(blame(run)),
        "earlier": [setbacks_title(run), *setbacks(run)] if run.setbacks else [],
        "unfolded": len(run.setbacks) <= FOLDED_SETBACKS_COUNT,
        "culprit": run.cause.task if run.cause else None,
        "notice": "\n".join(filter(None, [view.refusal, *remarks(run)])),
        "folder": inside(run.directory),
    }
