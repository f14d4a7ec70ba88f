"""A fake machine for tests."""

from __future__ import annotations

import asyncio
import itertools
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mwmagic.model.machine import Gpu, Machine

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .agent import FakeAgent
    from .worker import FakeWorker

__all__ = ["FakeMachine"]


class FakeMachine:
    """A machine within the test's process.

    Parameters
    ----------
    name : str
        Its name; also its address, unless `address` is given.
    address : str, optional
        The address at which the other machines reach it.
    interfaces : mapping of str to sequence of str, optional
        Its IP addresses by network interface; by default its address is that of ``eth0``.
    processors, gpus : int
        How many of each it has.
    memory : int
        Its memory in bytes.
    clock : float
        Seconds by which its monotonic clock is ahead of the supervisor's.
    slots : int, optional
        The most tasks that it can run; by default any number.
    shared : bool
        Whether it shares the supervisor's disk; otherwise it has its own.
    delay : float
        Seconds that each message takes, in either direction.
    warm_seconds : float
        How long the imports of the warm process take.
    lag_bytes : int
        How far the supervisor may fall behind a log before the agent skips ahead.
    look_seconds : float
        How long it takes to find out what the machine has.
    job : str
        The scheduler's job that it belongs to.
    until : float, optional
        When that job ends, in seconds of the wall clock.
    versions : mapping of str to str or None
        The versions of packages there, None for one that it lacks; by default 1.0 of each.

    Attributes
    ----------
    unreachable : dict of str to dict
        Why it cannot reach others, by their address, as an agent's ``reached`` says it.
    lost : bool
        Whether it is permanently gone.
    why : str or None
        What the scheduler says about its loss.
    cut_ways : set of str
        The directions in which no messages arrive: ``"there"``, ``"back"``.
    retry_seconds : dict of str to float
        After how long TCP sends again what a cut held up, for each direction; then after twice as
        long, and so on.
    load : float
        Its load over a minute.
    used : int
        Bytes of its memory in use.
    disk : dict
        The files on its own disk, by path.
    """

    def __init__(
        self,
        name: str,
        *,
        address: str | None = None,
        processors: int = 4,
        gpus: int = 0,
        memory: int = 8 << 30,
        clock: float = 0.0,
        slots: int | None = None,
        shared: bool = True,
        delay: float = 0.0,
        warm_seconds: float = 0.0,
        look_seconds: float = 0.0,
        lag_bytes: int = 4 << 20,
        job: str = "",
        until: float | None = None,
        interfaces: Mapping[str, Sequence[str]] | None = None,
        versions: Mapping[str, str | None] | None = None,
    ) -> None:
        self.name = name
        self.address = address or name
        self.has = Machine(
            processors=processors,
            memory=memory,
            gpus=tuple(Gpu(index, "Fake GPU", 80 << 30) for index in range(gpus)),
            why=None if gpus else "the test gave it none",
            host=name,
            addresses=interfaces or {"eth0": [self.address]},
            python="3.10.0",
        )
        self.clock = clock
        self.slots = slots
        self.shared = shared
        self.delay = delay
        self.warm_seconds = warm_seconds
        self.look_seconds = look_seconds
        self.lag_bytes = lag_bytes
        self.job = job
        self.until = until
        self.load = 0.0
        self.used = 0
        self.lost = False
        self.why: str | None = None
        self.cut_ways: set[str] = set()
        self.retry_seconds = {"there": 0.2, "back": 0.2}
        self.versions = dict(versions or {})
        self.unreachable: dict[str, dict[str, Any]] = {}
        self.disk: dict[str, bytearray] = {}
        self.ports = itertools.count(20_000)
        self.pids = itertools.count(100)
        self.agents: set[FakeAgent] = set()

    @property
    def time(self) -> float:
        """Its monotonic clock."""
        return time.monotonic() + self.clock

    @property
    def workers(self) -> tuple[FakeWorker, ...]:
        """The workers that are running on it."""
        return tuple(worker for agent in self.agents for worker in agent.workers.values())

    async def imported(self) -> None:
        """Return once a process of it has imported what its workers use."""
        await asyncio.sleep(self.warm_seconds)

    def lose(self, why: str | None = None) -> None:
        """Remove the machine with everything on it; `why` is the scheduler's message."""
        self.lost = True
        self.why = why
        self.reboot()

    def reboot(self) -> None:
        """End everything that runs on the machine, without a message."""
        for agent in list(self.agents):
            agent.vanish()

    def cut(self, *ways: str) -> None:
        """Let no more messages through, in these directions or in both; this ends no process."""
        self.cut_ways |= set(ways or ("there", "back"))

    def mend(self) -> None:
        """Let messages through again; those sent meanwhile arrive once TCP sends them again."""
        self.cut_ways.clear()

    def write(self, path: str, data: bytes) -> None:
        """Append to a file on the machine's disk."""
        if self.shared:
            with Path(path).open("ab", buffering=0) as file:
                file.write(data)
        else:
            self.disk.setdefault(path, bytearray()).extend(data)

    def store(self, path: str, offset: int, data: bytes) -> None:
        """Write a piece of a file on the machine's own disk; the first replaces what was there."""
        self.disk[path] = self.disk.get(path, bytearray())[:offset] + data

    def below(self, path: str) -> list[tuple[str, int]]:
        """Return the names and sizes of the files below a directory of its disk, or of a file."""
        if path in self.disk:
            return [("", len(self.disk[path]))]
        inside = {name: data for name, data in self.disk.items() if name.startswith(f"{path}/")}
        if not inside:
            raise FileNotFoundError(f"no such file or directory: {path}")
        return [(name[len(path) + 1 :], len(data)) for name, data in inside.items()]

    def read(self, path: str) -> bytes:
        """Return a file of the machine's disk.

        Raises
        ------
        FileNotFoundError
            There is no such file.
        """
        if self.shared:
            return Path(path).read_bytes()
        if path not in self.disk:
            raise FileNotFoundError(f"there is no file {path}")
        return bytes(self.disk[path])
