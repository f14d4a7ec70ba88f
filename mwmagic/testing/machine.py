"""A machine that a test makes up."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import TYPE_CHECKING

from mwmagic.model.machine import Gpu, Machine

if TYPE_CHECKING:
    from .agent import FakeAgent
    from .worker import FakeWorker

__all__ = ["FakeMachine"]

_FIRST_PORT = 20000


class FakeMachine:
    """A machine within the test's process.

    Parameters
    ----------
    name : str
        What the engine calls it; also its address, unless `address` is given.
    address : str, optional
        Where the other machines reach it.
    processors, gpus : int
        What it has.
    memory : int
        Bytes.
    clock : float
        Seconds by which its monotonic clock is ahead of the supervisor's.
    slots : int, optional
        How many tasks fit; by default any number.
    shared : bool
        Whether it sees the supervisor's disk; otherwise it has one of its own.
    delay : float
        Seconds that each message takes, in either direction.
    warm_seconds : float
        How long the warm process's imports take.
    lag_bytes : int
        How far the supervisor may be behind a log before the agent skips ahead.
    look_seconds : float
        How long it takes to find out what the machine has.

    Attributes
    ----------
    lost : bool
        Whether it is gone for good.
    why : str or None
        What the scheduler says about that.
    reachable : bool
        Whether messages arrive.
    disk : dict
        The files of a disk of its own, by path.
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
    ) -> None:
        self.name = name
        self.address = address or name
        self.has = Machine(
            processors=processors,
            memory=memory,
            gpus=tuple(Gpu(index, "Fake GPU", 80 << 30) for index in range(gpus)),
            why=None if gpus else "the test gave it none",
            host=name,
            addresses={"eth0": [self.address]},
            python="3.10.0",
        )
        self.clock = clock
        self.slots = slots
        self.shared = shared
        self.delay = delay
        self.warm_seconds = warm_seconds
        self.look_seconds = look_seconds
        self.lag_bytes = lag_bytes
        self.lost = False
        self.why: str | None = None
        self.reachable = True
        self.disk: dict[str, bytearray] = {}
        self.ports = itertools.count(_FIRST_PORT)
        self.pids = itertools.count(100)
        self.agents: set[FakeAgent] = set()

    @property
    def time(self) -> float:
        """Its monotonic clock."""
        return time.monotonic() + self.clock

    @property
    def workers(self) -> tuple[FakeWorker, ...]:
        """What runs on it now."""
        return tuple(worker for agent in self.agents for worker in agent.workers.values())

    def lose(self, why: str | None = None) -> None:
        """Have the machine go, with everything on it; `why` is the scheduler's word."""
        self.lost = True
        self.why = why
        self.reboot()

    def reboot(self) -> None:
        """End all that runs on the machine, without a word."""
        for agent in list(self.agents):
            agent.vanish()

    def cut(self) -> None:
        """Let no message through any more, in either direction; nothing ends by that."""
        self.reachable = False

    def mend(self) -> None:
        """Let messages through again; those sent meanwhile are lost."""
        self.reachable = True

    def write(self, path: str, data: bytes) -> None:
        """Append to a file on the machine's disk."""
        if self.shared:
            with Path(path).open("ab") as file:
                file.write(data)
        else:
            self.disk.setdefault(path, bytearray()).extend(data)

    def read(self, path: str) -> bytes:
        """Return a file of the machine's disk.

        Raises
        ------
        FileNotFoundError
            There is none.
        """
        if self.shared:
            return Path(path).read_bytes()
        if path not in self.disk:
            raise FileNotFoundError(f"there is no file {path}")
        return bytes(self.disk[path])
