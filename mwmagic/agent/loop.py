"""The event loop, with callbacks for ready descriptors in order, and the way out for events."""

from __future__ import annotations

import os
import select

from .wire import CHUNK_BYTES, encode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


class Loop:
    """Calls back when descriptors are ready, in the order in which they became so.

    The kernel's ready list keeps that order, so exits are seen in the order in which they happened,
    even if this process could not run in the meantime.
    """

    def __init__(self) -> None:
        self.epoll = select.epoll()
        self.callbacks: dict[int, Callable[[], None]] = {}

    def watch(
        self, descriptor: int, callback: Callable[[], None], events: int = select.EPOLLIN
    ) -> None:
        """Call back whenever a descriptor is ready for one of the events."""
        self.epoll.register(descriptor, events)
        self.callbacks[descriptor] = callback

    def unwatch(self, descriptor: int) -> None:
        """Stop watching a descriptor that is still open."""
        if self.callbacks.pop(descriptor, None):
            self.epoll.unregister(descriptor)

    def turn(self, pause: float) -> None:
        """Wait for ready descriptors, at most `pause` seconds, and call back."""
        ready = [(one, self.callbacks.get(one)) for one, _ in self.epoll.poll(pause)]
        for descriptor, callback in ready:
            # An earlier callback may have closed it and opened another with the same number.
            if callback and callback is self.callbacks.get(descriptor):
                callback()


QUEUE_BYTES = 256 << 10
"""Backpressure: while this much waits on standard output, no logs or packets are queued."""


class EventWriter:
    """Standard output, written without ever waiting for its reader."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.waiting = bytearray()
        self.broken = False
        os.set_blocking(descriptor, False)

    @property
    def full(self) -> bool:
        """Whether logs and workers' packets have to wait; exits and answers never do."""
        return len(self.waiting) >= QUEUE_BYTES

    def emit(self, kind: str, **fields: object) -> None:
        """Queue an event."""
        self.waiting += encode({"type": kind, **fields})

    def flush(self) -> None:
        """Write as much as the reader takes now."""
        try:
            while self.waiting and not self.broken:
                del self.waiting[: os.write(self.descriptor, self.waiting[:CHUNK_BYTES])]
        except BlockingIOError:
            pass
        except OSError:
            self.broken = True
