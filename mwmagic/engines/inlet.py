"""Hands on the lines of a stream as they come.

A task that awaits `asyncio.StreamReader.readline` gets a line two turns of the event loop after its
bytes have come, each of which asks the kernel what else is ready.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import TYPE_CHECKING

from mwmagic.model.messages import MESSAGE_BYTES, LineBuffer

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Inlet"]

READING_SECONDS = 0.001
"""How long lines are handed on in a row before others have their turn."""


class Inlet:
    """Takes the bytes of a stream, and hands on its lines.

    Attributes
    ----------
    ended : bool
        Whether no more bytes come.
    """

    def __init__(self) -> None:
        self.ended = False
        self._buffer = LineBuffer()
        self._waiting: deque[bytes] = deque()
        self._due = False
        self._take: Callable[[bytes], None] | None = None
        self._end: Callable[[], None] = lambda: None

    def listen(self, take: Callable[[bytes], None], end: Callable[[], None]) -> None:
        """Hand on what has come, and what comes."""
        self._take, self._end = take, end
        self._hand_on()

    def feed(self, data: bytes) -> None:
        """Take bytes; none are the end."""
        if self.ended:
            return
        self._waiting += self._buffer.lines(data)
        rest = self._buffer.rest
        self.ended = not data or len(rest) > MESSAGE_BYTES
        if self.ended and rest:
            self._waiting.append(bytes(rest[:MESSAGE_BYTES]))
        if not self._due:
            self._hand_on()

    @property
    def full(self) -> bool:
        """Whether there are lines that wait for their turn."""
        return bool(self._waiting)

    def deafen(self) -> None:
        """Hand on nothing more."""
        self._take = None

    def _hand_on(self) -> None:
        self._due = False
        until = time.monotonic() + READING_SECONDS
        while self._waiting and self._take is not None:
            self._take(self._waiting.popleft())
            if self._waiting and time.monotonic() > until:
                self._due = True  # a request does not wait for all that hundreds say
                asyncio.get_running_loop().call_soon(self._hand_on)
                return
        if self.ended and self._take is not None:
            self.deafen()
            self._end()
