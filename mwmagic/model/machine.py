"""Machines: what each has, and what a cluster has on it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Gpu", "Machine", "MachineStatus", "Warm"]


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
        Bytes, where the driver says so.
    """

    index: int
    name: str
    memory: int | None = None


@dataclass(frozen=True)
class Machine:
    """What a machine has, as its own agent sees it.

    Parameters
    ----------
    processors : int
        How many the agent may use.
    memory : int
        Bytes.
    gpus : tuple of Gpu
        What the driver lists.
    why : str, optional
        Why there are no GPUs.
    host : str
        What the machine calls itself.
    addresses : mapping of str to sequence of str
        The IP addresses of each network interface, but for the loopback.
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
        """Return a machine from JSON values; what is unknown among them is left out."""
        known = {name: values[name] for name in cls.__dataclass_fields__ if name in values}
        gpus = (Gpu(one["index"], one["name"], one["memory"]) for one in known.get("gpus", ()))
        return cls(**{**known, "gpus": tuple(gpus)})


@dataclass(frozen=True)
class Warm:
    """A machine's warm process.

    Parameters
    ----------
    state : str
        ``off``, ``importing``, ``ready`` or ``failed``.
    seconds : float, optional
        How long its imports took.
    error : str, optional
        Why it failed.
    pid : int, optional
        Its process.
    """

    state: str = "off"
    seconds: float | None = None
    error: str | None = None
    pid: int | None = None


@dataclass(frozen=True)
class MachineStatus:
    """A machine of a cluster, as it is now.

    Parameters
    ----------
    name, address : str
        What the engine calls it, and where the others reach it.
    tasks : tuple of str
        The tasks on it.
    lost : bool
        Whether its agent is gone.
    warm : Warm
        Its warm process.
    machine : Machine, optional
        What it has, once that is known.
    """

    name: str
    address: str
    tasks: tuple[str, ...]
    lost: bool = False
    warm: Warm = Warm()
    machine: Machine | None = None

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> MachineStatus:
        """Return a status from JSON values, as `dataclasses.asdict` makes them."""
        machine = values["machine"]
        return cls(
            **{
                **values,
                "tasks": tuple(values["tasks"]),
                "warm": Warm(**values["warm"]),
                "machine": None if machine is None else Machine.read(machine),
            }
        )
