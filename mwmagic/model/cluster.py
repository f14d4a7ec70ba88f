"""Tasks and the cluster they form: names, addresses and rules."""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from mwmagic.errors import ClusterError

from .values import counted

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

__all__ = ["CHIEF", "TYPES", "ClusterSpec", "Task", "TaskName", "find_task", "make_tasks"]

TYPES = ("chief", "worker", "ps", "evaluator")
"""The task types that TensorFlow's cluster resolvers know, in rank order."""

_NAME = re.compile(r"(?P<type>[a-z]+)(:(?P<index>[0-9]{1,9}))?|(?P<worker>[0-9]{1,9})")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_PORT = re.compile(r"[1-9][0-9]{0,4}")
_PORTS = range(1, 65536)
_TASKS_LIMIT = len(_PORTS)  # per type: one task for each port of a machine
_NAMED_TASKS = 4  # per type: more are given as a range in a message


@dataclass(frozen=True)
class Task:
    """One process of a cluster.

    Parameters
    ----------
    type : str
        ``chief``, ``worker``, ``ps`` or ``evaluator``.
    index : int
        Its number among the tasks of that type, from 0.

    Raises
    ------
    ClusterError
        The type is unknown or the index negative.
    """

    type: str
    index: int

    def __post_init__(self) -> None:
        if self.type not in TYPES:
            raise ClusterError(f"unknown task type {self.type!r}; the types are {', '.join(TYPES)}")
        if isinstance(self.index, bool) or not isinstance(self.index, int) or self.index < 0:
            raise ClusterError(f"a task's index is a whole number from 0, not {self.index!r}")

    def __str__(self) -> str:
        return f"{self.type}:{self.index}"

    @property
    def slug(self) -> str:
        """The name in file names: ``worker-1``."""
        return f"{self.type}-{self.index}"

    @classmethod
    def parse(cls, name: TaskName) -> Task:
        """Parse a task's name as people write it.

        Parameters
        ----------
        name : Task, int or str
            ``1`` and ``"1"`` are ``worker:1``; a type alone, such as
            ``"chief"``, is the first task of that type.

        Raises
        ------
        ClusterError
            The name has none of these forms.
        """
        if isinstance(name, Task):
            return name
        if isinstance(name, int) and not isinstance(name, bool):
            return cls("worker", name)
        match = _NAME.fullmatch(name.strip()) if isinstance(name, str) else None
        if match is None:
            raise ClusterError(f"{name!r} is not a task's name; write 1, 'worker:1' or 'chief'")
        return cls(match["type"] or "worker", int(match["index"] or match["worker"] or 0))


CHIEF = Task("chief", 0)
"""The role of a cluster's owner that coordinates the cluster itself."""

TaskName = Task | int | str
"""How a task may be named: ``1``, ``"worker:1"`` or ``Task("worker", 1)``."""


def make_tasks(
    workers: int, *, chief: bool = False, ps: int = 0, evaluator: bool = False
) -> tuple[Task, ...]:
    """Return the tasks of a cluster, in rank order."""
    for what, count in (("workers", workers), ("ps", ps)):
        if count > _TASKS_LIMIT:
            raise ClusterError(f"{what} must be at most {_TASKS_LIMIT}, not {count}")
    if workers + chief == 0:
        raise ClusterError("a cluster needs at least 1 worker or a chief; this one has 0 workers")
    if ps and not workers:
        raise ClusterError(f"parameter servers ({ps}) need at least 1 worker to serve; add workers")
    counts = {"chief": int(chief), "worker": workers, "ps": ps, "evaluator": int(evaluator)}
    return tuple(Task(kind, index) for kind in TYPES for index in range(counts[kind]))


def _listed(tasks: Iterable[Task]) -> str:
    """Return the names of tasks for a message, many of one type as a range."""
    groups: dict[str, list[Task]] = {}
    for task in tasks:
        groups.setdefault(task.type, []).append(task)
    return ", ".join(
        f"{group[0]} to {group[-1]}" if len(group) > _NAMED_TASKS else ", ".join(map(str, group))
        for group in groups.values()
    )


def _check_address(task: Task, address: str) -> None:
    host, _, port = address.rpartition(":") if isinstance(address, str) else ("", "", "")
    if not host or not _PORT.fullmatch(port) or int(port) not in _PORTS:
        raise ClusterError(
            f"{task} has the address {address!r}; an address is host:port, with a port in 1..65535"
        )
    if host.startswith("[") and host.endswith("]"):
        try:
            ipaddress.IPv6Address(host[1:-1])
        except ValueError as error:
            raise ClusterError(f"{task} has the address {address!r}: {error}") from error
    elif not _HOST.fullmatch(host):
        raise ClusterError(f"{task} has the address {address!r}; {host!r} is not a valid host name")


def _check_members(tasks: Sequence[Task]) -> None:
    counts = Counter(task.type for task in tasks)
    if not counts["chief"] + counts["worker"]:
        have = _listed(tasks) or "no tasks"
        raise ClusterError(f"a cluster needs at least 1 worker or a chief; this one has {have}")
    for kind in ("chief", "evaluator"):
        if counts[kind] > 1:
            raise ClusterError(f"a cluster has at most one {kind}, not {counts[kind]}")
    for kind in counts:
        indexes = [task.index for task in tasks if task.type == kind]
        if indexes != list(range(len(indexes))):
            gap = next(at for at, index in enumerate(indexes) if at != index)
            raise ClusterError(
                f"there is a {kind}:{indexes[-1]} but no {kind}:{gap}; "
                "the tasks of a type are numbered from 0 without gaps"
            )


def _rank(placed: tuple[Task, str]) -> tuple[int, int]:
    task, _ = placed
    return TYPES.index(task.type), task.index


@dataclass(frozen=True)
class ClusterSpec:
    """The tasks of a cluster and the address of each.

    Parameters
    ----------
    placed : tuple of (Task, str)
        Each task with its ``host:port``, sorted by rank.

    Raises
    ------
    ClusterError
        An address is malformed or used twice, a task is placed twice, the
        indexes have gaps, or no task would train.
    """

    placed: tuple[tuple[Task, str], ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "placed", tuple(sorted(self.placed, key=_rank)))
        seen: dict[str, Task] = {}
        for task, address in self.placed:
            _check_address(task, address)
            other = seen.setdefault(address.lower(), task)
            if other != task:
                raise ClusterError(f"{other} and {task} both have the address {address}")
        if len(self.addresses) != len(self.placed):
            task, times = Counter(self.tasks).most_common(1)[0]
            raise ClusterError(f"{task} is placed {times} times")
        _check_members(self.tasks)

    @classmethod
    def of(cls, tasks: Sequence[Task], addresses: Sequence[str]) -> ClusterSpec:
        """Return the cluster with each task at its address.

        Raises
        ------
        ClusterError
            The numbers of tasks and addresses differ, or the cluster is invalid.
        """
        if len(tasks) != len(addresses):
            raise ClusterError(
                f"{counted(len(tasks), 'task')} cannot be placed at "
                f"{len(addresses)} address{'' if len(addresses) == 1 else 'es'}"
            )
        return cls(tuple(zip(tasks, addresses, strict=True)))

    @cached_property
    def addresses(self) -> Mapping[Task, str]:
        """Each task's ``host:port``."""
        return dict(self.placed)

    @cached_property
    def tasks(self) -> tuple[Task, ...]:
        """All tasks, in rank order."""
        return tuple(task for task, _ in self.placed)

    @cached_property
    def members(self) -> tuple[Task, ...]:
        """The tasks that know each other: all but the evaluator."""
        return tuple(task for task in self.tasks if task.type != "evaluator")

    @cached_property
    def groups(self) -> Mapping[str, Sequence[str]]:
        """The members' addresses by type, in rank order."""
        found: dict[str, list[str]] = {}
        for task in self.members:
            found.setdefault(task.type, []).append(self.addresses[task])
        return found

    @cached_property
    def hosts(self) -> frozenset[str]:
        """The hosts in the addresses."""
        return frozenset(address.rpartition(":")[0] for address in self.addresses.values())

    @property
    def chief(self) -> Task:
        """The task that writes for all: ``chief:0`` if there is one, else ``worker:0``.

        This is the rule of ``tf.distribute``'s ``multi_worker_util.is_chief``.
        """
        return self.members[0]

    def find(self, name: TaskName) -> Task:
        """Return the task of a name.

        Raises
        ------
        ClusterError
            There is no such task; the message lists the tasks that exist.
        """
        return find_task(name, self.addresses)


def find_task(name: TaskName, tasks: Collection[Task]) -> Task:
    """Return the task of a name among `tasks`."""
    try:
        task = Task.parse(name)
    except ClusterError as error:
        raise ClusterError(f"{error}; {_have(tasks)}") from None
    if task not in tasks:
        raise ClusterError(f"{task} does not exist; {_have(tasks)}")
    return task


def _have(tasks: Iterable[Task]) -> str:
    return f"this cluster's tasks are {_listed(tasks) or 'none'}"
