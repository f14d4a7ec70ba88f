"""A cluster's machines: what each has and runs, and how a display shows several.

Also the waits for them (`Placing`) and for files on them (`Fetch`), how tasks are spread over them,
and what keeps one from reaching another (`Obstacle`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal

from mwmagic.agent.wire import FAILED, REFUSED, SILENT, STRANGER, UNRESOLVED, UNROUTABLE
from mwmagic.errors import ClusterError

from .stored import Stored
from .values import counted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .cluster import Task

__all__ = [
    "FAILED",
    "REFUSED",
    "SILENT",
    "STRANGER",
    "UNRESOLVED",
    "UNROUTABLE",
    "Fetch",
    "Gpu",
    "HostStatus",
    "Machine",
    "MachineStatus",
    "Obstacle",
    "Placing",
    "Warm",
    "WarmState",
    "several",
    "spread",
]

WarmState = Literal["off", "importing", "ready", "failed"]
"""Whether a machine's warm process can start a task."""


def _known(kind: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that are fields of a dataclass."""
    return {one.name: values[one.name] for one in fields(kind) if one.name in values}


@dataclass(frozen=True)
class Gpu:
    """A GPU, as the driver lists it.

    Parameters
    ----------
    index : int
        The driver's number for it.
    name : str
        The model, such as ``NVIDIA H100``.
    memory : int, optional
        Bytes, if the driver reports them.
    """

    index: int
    name: str
    memory: int | None = None


@dataclass(frozen=True)
class Machine:
    """What a machine has, as its agent sees it.

    Parameters
    ----------
    processors : int
        How many processors the agent may use.
    memory : int
        Bytes that the agent may use.
    gpus : tuple of Gpu
        The GPUs that the driver lists.
    why : str, optional
        Why there are no GPUs.
    host : str
        The machine's own host name.
    addresses : mapping of str to sequence of str
        The IP addresses of each network interface except the loopback.
    python : str
        The version of Python that runs the agent.
    visible : str, optional
        The machine's own CUDA_VISIBLE_DEVICES.
    """

    processors: int
    memory: int = 0
    gpus: tuple[Gpu, ...] = ()
    why: str | None = None
    host: str = ""
    addresses: Mapping[str, Sequence[str]] = field(default_factory=dict, hash=False)
    python: str = ""
    visible: str | None = None

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> Machine:
        """Return a machine from JSON values; unknown ones are ignored."""
        known = _known(cls, values)
        gpus = (Gpu(one["index"], one["name"], one["memory"]) for one in known.get("gpus", ()))
        return cls(**{**known, "gpus": tuple(gpus)})


@dataclass(frozen=True)
class Warm:
    """A machine's warm process.

    Parameters
    ----------
    state : WarmState
        Whether it can start a task.
    seconds : float, optional
        How long its imports took.
    error : str, optional
        Why it failed.
    pid : int, optional
        Its process.
    """

    state: WarmState = "off"
    seconds: float | None = None
    error: str | None = None
    pid: int | None = None


@dataclass(frozen=True)
class MachineStatus:
    """The current state of a machine of a cluster.

    Parameters
    ----------
    name, address : str
        The engine's name for it, and the address at which the other machines reach it.
    tasks : tuple of str
        The tasks on it.
    lost : bool
        Whether its agent is gone.
    warm : Warm
        Its warm process.
    machine : Machine, optional
        What it has, once that is known.
    load : float, optional
        How many processes ran or waited to run, on average over the last minute.
    used : int, optional
        Bytes of memory in use.
    why : str, optional
        What the scheduler says about its loss.
    job : str
        The scheduler's job that it belongs to, if there is one.
    until : float, optional
        When that job ends, in seconds of the wall clock.
    versions : mapping of str to str or None
        The versions there of the framework's packages, where they are known: None for one that
        is missing.
    """

    name: str
    address: str
    tasks: tuple[str, ...]
    lost: bool = False
    warm: Warm = Warm()
    machine: Machine | None = None
    load: float | None = None
    used: int | None = None
    why: str | None = None
    job: str = ""
    until: float | None = None
    versions: Mapping[str, str | None] = field(default_factory=dict, hash=False)

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> MachineStatus:
        """Return a status from JSON values, as `dataclasses.asdict` produces them.

        Values that a newer supervisor adds are ignored.
        """
        machine = values["machine"]
        return cls(
            **{
                **_known(cls, values),
                "tasks": tuple(values["tasks"]),
                "warm": Warm(**_known(Warm, values["warm"])),
                "machine": None if machine is None else Machine.read(machine),
            }
        )


@dataclass(frozen=True)
class HostStatus(Stored):
    """A machine among several, in brief.

    Parameters
    ----------
    name : str
        The engine's name for it.
    tasks : tuple of str
        The tasks on it, in rank order.
    lost : bool
        Whether its agent is gone.
    why : str or None
        What the scheduler says about its loss.
    processors : int
        How many processors the agent may use; 0 while that is not known.
    load : float or None
        How many processes ran or waited to run, on average over a minute.
    memory : int
        Bytes that the agent may use; 0 while that is not known.
    used : int or None
        Bytes of them in use.
    gpus : dict of str to int
        How many GPUs it has of each model.
    job : str
        The scheduler's job that it belongs to, if there is one.
    until : float or None
        When that job ends, in seconds of the wall clock.
    """

    name: str = ""
    tasks: tuple[str, ...] = ()
    lost: bool = False
    why: str | None = None
    processors: int = 0
    load: float | None = None
    memory: int = 0
    used: int | None = None
    gpus: dict[str, int] = field(default_factory=dict)
    job: str = ""
    until: float | None = None

    @classmethod
    def of(cls, status: MachineStatus) -> HostStatus:
        """Return what matters of a machine to a display."""
        has = status.machine
        return cls(
            name=status.name,
            tasks=status.tasks,
            lost=status.lost,
            why=status.why,
            processors=has.processors if has else 0,
            load=status.load,
            memory=has.memory if has else 0,
            used=status.used,
            gpus=dict(Counter(gpu.name for gpu in has.gpus)) if has else {},
            job=status.job,
            until=status.until,
        )


def several(machines: Sequence[MachineStatus]) -> tuple[HostStatus, ...]:
    """Return the hosts of a cluster that has several; a single machine needs no telling."""
    return tuple(map(HostStatus.of, machines)) if len(machines) > 1 else ()


@dataclass(frozen=True)
class Placing:
    """Whether a cluster has its machines.

    Parameters
    ----------
    state : {"waiting", "placed", "failed"}
        Whether it waits for them, has them, or cannot get them.
    message : str
        The scheduler's latest message.
    kind, error : str
        The class of the error that it cannot get them for, and its text.
    """

    state: Literal["waiting", "placed", "failed"] = "waiting"
    message: str = ""
    kind: str = ""
    error: str = ""


def spread(tasks: Sequence[Task], slots: Sequence[int | None]) -> list[tuple[Task, ...]]:
    """Give each machine its share of the tasks.

    Shares are contiguous, so that neighbouring ranks are on the same machine, and
    as equal as the machines' slots allow.
    """
    counts = [0] * len(slots)
    for placed in range(len(tasks)):
        free = [at for at, most in enumerate(slots) if most is None or counts[at] < most]
        if not free:
            raise ClusterError(
                f"there is no room for {counted(len(tasks), 'task')} on "
                f"{counted(len(slots), 'machine')} with {counted(placed, 'slot')} in all; use "
                "fewer tasks or more machines"
            )
        counts[min(free, key=lambda at: counts[at])] += 1
    left = iter(tasks)
    return [tuple(next(left) for _ in range(count)) for count in counts]


@dataclass(frozen=True)
class Fetch:
    """A file or directory that is fetched from a task's machine.

    Parameters
    ----------
    task : str
        The task.
    path : str
        Its path there.
    to : str
        Its path here.
    state : {"going", "done", "here", "failed"}
        Whether it is on its way, has arrived, need not travel, or cannot be had.
    files, size : int
        How many files and bytes it has.
    done : int
        How many bytes are here.
    kind, error : str
        The class of the error for which it cannot be had, and its text.
    """

    task: str
    path: str
    to: str
    state: Literal["going", "done", "here", "failed"] = "going"
    files: int = 0
    size: int = 0
    done: int = 0
    kind: str = ""
    error: str = ""


@dataclass(frozen=True)
class Obstacle:
    """Why one machine cannot connect to another.

    Parameters
    ----------
    source, target : str
        The names of the machine that connects and of the other.
    address : str
        The address of the other, with a port at which it listens.
    why : str
        One of `mwmagic.agent.wire.OBSTACLES`.
    at : tuple of str
        The IP addresses that the address stands for on the first machine.
    error : str
        What the system says.
    interfaces : mapping of str to sequence of str
        The IP addresses of the other machine, by network interface.
    """

    source: str
    target: str
    address: str
    why: str
    at: tuple[str, ...] = ()
    error: str = ""
    interfaces: Mapping[str, Sequence[str]] = field(default_factory=dict, hash=False)

    @property
    def loops(self) -> bool:
        """Whether the address stands for the first machine itself."""
        return bool(self.at) and all(one == "::1" or one.startswith("127.") for one in self.at)
