"""An engine with fake machines."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mwmagic.engines import Host
from mwmagic.errors import SupervisorError

from .agent import FakeAgent
from .machine import FakeMachine
from .wire import Wire

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from mwmagic.engines.link import Link
    from mwmagic.model.cluster import Task

    from .worker import Script

__all__ = ["FakeEngine", "FakeHost"]


async def _succeed(_: object) -> int:
    return 0


@dataclass(frozen=True)
class FakeHost(Host):
    """A fake machine, as offered by an engine."""

    machine: FakeMachine = field(default_factory=lambda: FakeMachine("nowhere"))
    script: Script = _succeed

    async def connect(self) -> Link:
        """Start an agent in this process.

        Raises
        ------
        SupervisorError
            The machine is gone.
        """
        if self.machine.lost:
            raise SupervisorError(f"{self.name} does not answer")
        wire = Wire(self.machine)
        FakeAgent(self.machine, wire, self.script)
        return wire


class FakeEngine:
    """Provides fake machines; see `mwmagic.engines.Engine`.

    Parameters
    ----------
    machines : sequence of FakeMachine
        All machines, in the order in which they are allocated.
    script : callable
        What each task does: a coroutine function that takes a `FakeWorker`.
    most : int, optional
        The most machines in one allocation; the others are spare.
    words : sequence of str
        The scheduler's messages while an allocation is pending.

    Attributes
    ----------
    allocations : list of frozenset of str
        The machines that each `allocate` was asked to avoid.
    released : int
        How often `release` was called.
    """

    def __init__(
        self,
        machines: Sequence[FakeMachine],
        script: Script = _succeed,
        *,
        most: int | None = None,
        words: Sequence[str] = (),
    ) -> None:
        self.machines = list(machines)
        self.script = script
        self.most = most
        self.words = words
        self.helpers: Collection[int] = ()
        self.allocations: list[frozenset[str]] = []
        self.released = 0

    async def allocate(
        self, tasks: Sequence[Task], *, avoid: Collection[str], notify: Callable[[str], None]
    ) -> Sequence[Host]:
        """Return the first machines that are not lost, and those to avoid only if need be."""
        self.allocations.append(frozenset(avoid))
        for words in self.words:
            notify(words)
        there = [one for one in self.machines if not one.lost]
        wanted = [one for one in there if one.name not in avoid] or there
        if not wanted:
            raise SupervisorError("no machine is left")
        return [self.host(one) for one in wanted[: self.most or len(tasks)]]

    def host(self, machine: FakeMachine) -> FakeHost:
        """Return a machine as offered by this engine."""
        return FakeHost(
            machine.name,
            machine.address,
            (machine.name,),
            slots=machine.slots,
            shared=machine.shared,
            job=machine.job,
            until=machine.until,
            machine=machine,
            script=self.script,
        )

    async def why(self, host: Host) -> str | None:
        """Return the reason that the test gave."""
        return next(one.why for one in self.machines if one.name == host.name)

    async def release(self) -> None:
        """End everything on the machines."""
        self.released += 1
        for machine in self.machines:
            machine.reboot()
