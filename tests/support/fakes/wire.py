"""A link within one process that can be slow or broken."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from mwmagic.engines.inlet import Inlet
from mwmagic.model.messages import MESSAGE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

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
        self._under_way: dict[Callable[[bytes | None], None], deque[bytes | None]] = {
            self._command: deque(),
            self._event: deque(),
        }

    def write(self, data: bytes) -> None:
        """Send commands."""
        self._carry(self._command, data)

    def close(self) -> None:
        """End the commands."""
        self._carry(self._command, None)

    def report(self, data: bytes | None) -> None:
        """Send events, or their end, from the agent's side."""
        self._carry(self._event, data)
        if data is None:
            self._broken.set()

    def wake(self) -> None:
        """Do nothing: no process carries the link."""

    def kill(self) -> None:
        """Break the link: neither side receives anything more from the other."""
        for feed in self._under_way:
            feed(None)
        self._broken.set()

    async def wait(self) -> None:
        """Wait until the link is broken, or the agent has ended."""
        await self._broken.wait()

    def _carry(self, feed: Callable[[bytes | None], None], data: bytes | None) -> None:
        if not self._machine.reachable or self._broken.is_set():
            return
        # Each timer delivers the oldest message, because equal delays may fire in any order.
        self._under_way[feed].append(data)
        if self._machine.delay:
            loop = asyncio.get_running_loop()
            loop.call_later(self._machine.delay, self._deliver, feed)
        else:
            self._deliver(feed)

    def _deliver(self, feed: Callable[[bytes | None], None]) -> None:
        feed(self._under_way[feed].popleft())

    def _event(self, data: bytes | None) -> None:
        self.events.feed(data or b"")

    def _command(self, data: bytes | None) -> None:
        if self.commands._eof:  # type: ignore[attr-defined]
            return
        if data is None:
            self.commands.feed_eof()
        else:
            self.commands.feed_data(data)
