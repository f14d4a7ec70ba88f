"""A link within one process that can be slow or broken."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from mwmagic.engines.link import LineReader
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
        The agent's machine; its ``delay`` and ``cut_ways`` decide what arrives, and when.

    Attributes
    ----------
    commands : asyncio.StreamReader
        What the agent reads.
    events : LineReader
        What the supervisor reads.
    """

    def __init__(self, machine: FakeMachine) -> None:
        self.commands = asyncio.StreamReader(limit=MESSAGE_BYTES)
        self.events = LineReader()
        self.pid: int | None = None
        self._machine = machine
        self._broken = asyncio.Event()
        self._under_way: dict[Callable[[bytes | None], None], deque[bytes | None]] = {
            self._command: deque(),
            self._event: deque(),
        }
        self._held: dict[Callable[[bytes | None], None], list[bytes | None]] = {
            self._command: [],
            self._event: [],
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

    def wake(self) -> None:
        """Do nothing: no process carries the link."""

    def kill(self) -> None:
        """Break the link, as the end of its client does: the agent hears of that if it can."""
        self.close()
        self._event(None)

    async def wait(self) -> None:
        """Wait until the link is broken, or the agent has ended."""
        await self._broken.wait()

    def _carry(self, feed: Callable[[bytes | None], None], data: bytes | None) -> None:
        if self._broken.is_set():
            return
        if self._held[feed] or self._cut(feed):
            self._hold(feed, data)
            return
        # Each timer delivers the oldest message, because equal delays may fire in any order.
        self._under_way[feed].append(data)
        if self._machine.delay:
            loop = asyncio.get_running_loop()
            loop.call_later(self._machine.delay, self._deliver, feed)
        else:
            self._deliver(feed)

    def _way(self, feed: Callable[[bytes | None], None]) -> str:
        return "there" if feed == self._command else "back"

    def _cut(self, feed: Callable[[bytes | None], None]) -> bool:
        return self._way(feed) in self._machine.cut_ways

    def _hold(self, feed: Callable[[bytes | None], None], data: bytes | None) -> None:
        """Keep what does not arrive until TCP, which waits ever longer, sends it again."""
        self._held[feed].append(data)
        if len(self._held[feed]) == 1:
            first = self._machine.retry_seconds[self._way(feed)]
            asyncio.get_running_loop().call_later(first, self._retry, feed, first)

    def _retry(self, feed: Callable[[bytes | None], None], waited: float) -> None:
        if self._cut(feed):
            loop = asyncio.get_running_loop()
            loop.call_later(2 * waited, self._retry, feed, 2 * waited)
            return
        held, self._held[feed] = self._held[feed], []
        for data in held:
            feed(data)

    def _deliver(self, feed: Callable[[bytes | None], None]) -> None:
        feed(self._under_way[feed].popleft())

    def _event(self, data: bytes | None) -> None:
        self.events.feed(data or b"")
        if data is None:
            self._broken.set()

    def _command(self, data: bytes | None) -> None:
        if self.commands._eof:  # type: ignore[attr-defined]
            return
        if data is None:
            self.commands.feed_eof()
        else:
            self.commands.feed_data(data)
