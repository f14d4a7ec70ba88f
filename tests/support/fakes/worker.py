"""A task's process, simulated by a coroutine."""

from __future__ import annotations

import asyncio
import signal
import traceback
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from mwmagic.model import variables

if TYPE_CHECKING:
    from .machine import FakeMachine

__all__ = ["FakeWorker", "Script"]


class FakeWorker:
    """The process of a task, as its script sees it.

    Parameters
    ----------
    machine : FakeMachine
        The machine that it is on.
    command : mapping
        The agent's ``start`` command.
    changed : callable
        Called when there is output to forward.
    said : callable
        Called with a packet for the supervisor.

    Attributes
    ----------
    argv, env
        Its command line and its environment.
    report : dict or None
        What it reports about its failure.
    cpu : float
        Seconds of CPU time that it has used.
    memory : int
        Bytes of memory that it uses.
    received : asyncio.Queue of str
        The packets from the supervisor on its line.
    stack : str
        What it writes to its stacks file when it is asked.
    """

    def __init__(
        self,
        machine: FakeMachine,
        command: dict[str, Any],
        changed: Callable[[FakeWorker], None],
        said: Callable[[FakeWorker, str], None],
    ) -> None:
        self.machine = machine
        self.process: str = command["process"]
        self.argv: list[str] = command["argv"]
        self.env: dict[str, str] = command["env"]
        self.pid = next(machine.pids)
        self.report: dict[str, Any] | None = None
        self.cpu = 0.0
        self.memory = 1 << 20
        self.stack = ""
        self.received: asyncio.Queue[str] = asyncio.Queue()
        self.signal: int | None = None
        self.output = bytearray()
        self.sent = 0
        self.credit: int = command["credit"]
        self._log: str = command["log"]
        self._changed = changed
        self._said = said
        self._running: asyncio.Task[int | None] | None = None

    @property
    def task(self) -> str:
        """The task's name, such as ``worker:0``."""
        return self.env.get(variables.TASK, "")

    @property
    def attempt(self) -> int:
        """The number of the attempt, from 1."""
        return int(self.env.get(variables.ATTEMPT, "1"))

    def print(self, *words: object) -> None:
        """Print a line."""
        self.write((" ".join(map(str, words)) + "\n").encode("utf-8", "surrogateescape"))

    def write(self, data: bytes) -> None:
        """Print bytes."""
        self.machine.write(self._log, data)
        self.output += data
        self._changed(self)

    def say(self, data: str) -> None:
        """Send the supervisor a packet on the worker's line."""
        self._said(self, data)

    async def sleep(self, seconds: float) -> None:
        """Do nothing for some seconds."""
        await asyncio.sleep(seconds)

    async def hang(self) -> None:
        """Do nothing until it is ended."""
        await asyncio.Event().wait()

    async def run(self, script: Script) -> int | None:
        """Run the script to its end and return its exit code; None if a signal ended it."""
        if variables.STACKS in self.env:
            self.machine.write(
                self.env[variables.STACKS], b""
            )  # shows that it can be asked for its stack
        self._running = asyncio.ensure_future(self._guarded(script))
        try:
            return await self._running
        except asyncio.CancelledError:
            if self.signal is None:
                raise
            return None

    async def _guarded(self, script: Script) -> int | None:
        """Run the script, and fail as Python does."""
        try:
            return await script(self) or 0
        except Exception:  # noqa: BLE001 - as in a real worker, which prints any exception
            self.write(traceback.format_exc().encode())
            return 1

    def take(self, number: int) -> None:
        """Handle a signal: one writes the stack, SIGSTOP does nothing, all others end it."""
        if number == variables.STACKS_SIGNAL:
            self.machine.write(self.env[variables.STACKS], self.stack.encode())
        elif number not in (signal.SIGSTOP, signal.SIGCONT) and self.signal is None:
            self.signal = number
            if self._running is not None:
                self._running.cancel()

    def vanish(self) -> None:
        """End without a trace."""
        self.take(signal.SIGKILL)

    def forward(self, *, all_of_it: bool = False) -> tuple[int, bytes] | None:
        """Return the next piece of the log to forward, after its offset."""
        self.sent = max(self.sent, len(self.output) - self.machine.lag_bytes)
        size = len(self.output) - self.sent
        size = size if all_of_it else min(size, self.credit)
        if size <= 0:
            return None
        start, self.sent = self.sent, self.sent + size
        self.credit -= size
        return start, bytes(self.output[start : self.sent])


Script = Callable[[FakeWorker], Awaitable["int | None"]]
"""What a task does; it returns the exit code, where None means 0."""
