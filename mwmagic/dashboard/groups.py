"""A run's tasks by host, and which of them are shown where there are too many for all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mwmagic.words.run import tone

if TYPE_CHECKING:
    from mwmagic.model.machine import HostStatus
    from mwmagic.model.status import RunStatus, TaskStatus

__all__ = ["HostGroup", "folded", "grouped"]

MOST_UNFOLDED_TASKS = 16
"""The most tasks of a run on several hosts that are all shown; those of more are summarised."""

MOST_RAISED_TASKS = 8
"""The most tasks that are shown although their hosts are folded."""


@dataclass(frozen=True)
class HostGroup:
    """A host and its tasks.

    Parameters
    ----------
    host : HostStatus
        The host.
    tasks : dict of str to TaskStatus
        All its tasks.
    raised : dict of str to TaskStatus
        Those that need attention.
    folded : bool
        Whether the others are not shown at first.
    """

    host: HostStatus
    tasks: dict[str, TaskStatus]
    raised: dict[str, TaskStatus]
    folded: bool

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
