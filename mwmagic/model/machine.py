"""Machines: what each has, and what a cluster runs on it."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Gpu", "Machine", "MachineStatus", "Warm", "WarmState"]

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
