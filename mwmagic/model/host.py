"""The hosts of a run whose tasks are on several machines: what a display shows of each."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .stored import Stored

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .machine import MachineStatus

__all__ = ["HostStatus", "several"]


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
