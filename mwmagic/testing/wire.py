"""A link within one process that can be slow or broken."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from mwmagic.model.messages import MESSAGE_BYTES

if TYPE_CHECKING:
    from .machine import FakeMachine

__all__ = ["Wire"]


class Wire:
    """Two streams between a supervisor and an agent in the same process.

    Parameters
    ----------
    machine : FakeMachine
        The agent's machine; its ``delay`` and ``reachable`` decide what arrives, and when.

    Attributes
    ----------
    commands, events : asyncio.StreamReader
        What the agent reads, and what the supervisor reads.
    """

    def __init__(self, machine: FakeMachine) -> None:
        self.commands = asyncio.StreamReader(limit=MESSAGE_BYTES)
        self.events = asyncio.StreamReader(limit=MESSAGE_BYTES)
        self.pid: int | None = None
        self._machine = machine
        self._broken = asyncio.Event()
        self._under_way: dict[asyncio.StreamReader, deque[bytes | None]] = {
            self.commands: deque(),
            self.events: deque(),
        }

    def write(self, data: bytes) -> None:
        """Send commands."""
        self._carry(self.commands, data)

    def close(self) -> None:
        """End the commands."""
        self._carry(self.commands, None)

    def report(self, data: bytes | None) -> None:
        """Send events, or their end, from the agent's side."""
        self._carry(self.events, data)
        if data is None:
            self._broken.set()

    def wake(self) -> None:
        """Do nothing: no process carries the link."""

    def kill(self) -> None:
        """Break the link: neither side receives anything more from the other."""
        for reader in self._under_way:
            if not reader.at_eof():
                reader.feed_eof()
        self._broken.set()

    async def wait(self) -> None:
        """Wait until the link is broken, or the agent has ended."""
        await self._broken.wait()

    def _carry(self, reader: asyncio.StreamReader, data: bytes | None) -> None:
        if not self._machine.reachable or self._broken.is_set():
            return
        # Each timer delivers the oldest message, because equal delays may fire in any order.
        self._under_way[reader].append(data)
        if self._machine.delay:
            loop = asyncio.get_running_loop()
            loop.call_later(self._machine.delay, self._deliver, reader)
        else:
            self._deliver(reader)

    def _deliver(self, reader: asyncio.StreamReader) -> None:
        data = self._under_way[reader].popleft()
        if self._ended(reader):
            return
        if data is None:
            reader.feed_eof()
        else:
            reader.feed_data(data)

    @staticmethod
    def _ended(reader: asyncio.StreamReader) -> bool:
        return bool(reader._eof)  # type: ignore[attr-defined]  # noqa: SLF001 - at_eof() is false while data is left
