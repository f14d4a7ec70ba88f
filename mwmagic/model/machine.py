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

from .values import Stored, counted

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
    """A GPU, as the driver lists it; `memory` is in bytes, if the driver reports it."""

    index: int
    name: str
    memory: int | None = None


@dataclass(frozen=True)
class Machine:
    """What a machine has, as its agent sees it."""

    processors: int
    memory: int = 0
    """How many CPUs and bytes the agent may use."""
    gpus: tuple[Gpu, ...] = ()
    why: str | None = None
    """Why there are no GPUs."""
    host: str = ""
    """The machine's own host name."""
    addresses: Mapping[str, Sequence[str]] = field(default_factory=dict, hash=False)
    """The IP addresses of each network interface except the loopback."""
    python: str = ""
    """The version of Python that runs the agent."""
    visible: str | None = None
    """The machine's own CUDA_VISIBLE_DEVICES."""

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> Machine:
        """Return a machine from JSON values; unknown ones are ignored."""
        known = _known(cls, values)
        gpus = (Gpu(one["index"], one["name"], one["memory"]) for one in known.get("gpus", ()))
        return cls(**{**known, "gpus": tuple(gpus)})


@dataclass(frozen=True)
class Warm:
    """A machine's warm process; `seconds` is how long its imports took, `error` why it failed."""

    state: WarmState = "off"
    seconds: float | None = None
    error: str | None = None
    pid: int | None = None


@dataclass(frozen=True)
class MachineStatus:
    """The current state of a machine of a cluster."""

    name: str
    address: str
    """The engine's name for it, and the address at which the other machines reach it."""
    tasks: tuple[str, ...]
    lost: bool = False
    """Whether its agent is gone."""
    warm: Warm = Warm()
    machine: Machine | None = None
    """What it has, once that is known."""
    load: float | None = None
    """How many processes ran or waited to run, on average over the last minute."""
    used: int | None = None
    """Bytes of memory in use."""
    why: str | None = None
    """What the scheduler says about its loss."""
    job: str = ""
    until: float | None = None
    """The scheduler's job that it belongs to, if there is one, and when that ends, in seconds of
    the wall clock."""
    versions: Mapping[str, str | None] = field(default_factory=dict, hash=False)
    """The versions there of the framework's packages, where they are known: None for one that is
    missing."""

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
    """A machine among several, in brief: `MachineStatus` says what its fields mean.

    `processors` and `memory` are 0 while they are not known; `gpus` has how many it has of each
    model.
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
    """Whether a cluster waits for its machines, has them, or cannot get them.

    `message` is the scheduler's latest; `kind` is the class of the error that it cannot get them
    for, and `error` its text.
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
    """A file or directory that is fetched from a path on a task's machine to a path here.

    It is on its way, has arrived, is ``here`` because it need not travel, or cannot be had, for an
    error of the class `kind`. `size` and `done` are its bytes, all and those that are here.
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
    """Why one machine cannot connect to another."""

    source: str
    target: str
    address: str
    """The machine that connects, the other, and that one's address with a port at which it
    listens."""
    why: str
    """One of `mwmagic.agent.wire.OBSTACLES`."""
    at: tuple[str, ...] = ()
    """The IP addresses that the address stands for on the first machine."""
    error: str = ""
    """What the system says."""
    interfaces: Mapping[str, Sequence[str]] = field(default_factory=dict, hash=False)
    """The IP addresses of the other machine, by network interface."""

    @property
    def loops(self) -> bool:
        """Whether the address stands for the first machine itself."""
        return bool(self.at) and all(one == "::1" or one.startswith("127.") for one in self.at)
