"""A link within one process that can be slow or broken."""

from __future__ import annotations

import asyncio
from collections import deque
from enum import Enum
from typing import TYPE_CHECKING

from mwmagic.engines.inlet import Inlet
from mwmagic.model.messages import MESSAGE_BYTES

if TYPE_CHECKING:
    from .machine import FakeMachine

__all__ = ["Wire"]


class _Way(Enum):
    THERE = "to the agent"
    BACK = "to the supervisor"


class Wire:
    """Two streams between a supervisor and an agent in the same process.

    Parameters
    ----------
    machine : FakeMachine
        The agent's machine; its ``delay`` and ``reachable`` decide what arrives, and when.

    Attributes
    ----------
    commands : asyncio.StreamReader
        What the agent reads.
    events : Inlet
        What the supervisor reads.
    """

    def __init__(self, machine: FakeMachine) -> None:
        self.commands = asyncio.StreamReader(limit=MESSAGE_BYTES)
        self.events = Inlet()
        self.pid: int | None = None
        self._machine = machine
        self._broken = asyncio.Event()
        self._under_way: dict[_Way, deque[bytes | None]] = {
            _Way.THERE: deque(),
            _Way.BACK: deque(),
        }

    def write(self, data: bytes) -> None:
        """Send commands."""
        self._carry(_Way.THERE, data)

    def close(self) -> None:
        """End the commands."""
        self._carry(_Way.THERE, None)

    def report(self, data: bytes | None) -> None:
        """Send events, or their end, from the agent's side."""
        self._carry(_Way.BACK, data)
        if data is None:
            self._broken.set()

    def wake(self) -> None:
        """Do nothing: no process carries the link."""

    def kill(self) -> None:
        """Break the link: neither side receives anything more from the other."""
        for way in _Way:
            self._feed(way, None)
        self._broken.set()

    async def wait(self) -> None:
        """Wait until the link is broken, or the agent has ended."""
        await self._broken.wait()

    def _carry(self, way: _Way, data: bytes | None) -> None:
        if not self._machine.reachable or self._broken.is_set():
            return
        # Each timer delivers the oldest message, because equal delays may fire in any order.
        self._under_way[way].append(data)
        if self._machine.delay:
            loop = asyncio.get_running_loop()
            loop.call_later(self._machine.delay, self._deliver, way)
        else:
            self._deliver(way)

    def _deliver(self, way: _Way) -> None:
        self._feed(way, self._under_way[way].popleft())

    def _feed(self, way: _Way, data: bytes | None) -> None:
        if way is _Way.BACK:
            self.events.feed(data or b"")
        elif self._commands_ended:
            return
        elif data is None:
            self.commands.feed_eof()
        else:
            self.commands.feed_data(data)

    @property
    def _commands_ended(self) -> bool:
        return bool(self.commands._eof)  # type: ignore[attr-defined]  # noqa: SLF001 - at_eof() is false while data is left
