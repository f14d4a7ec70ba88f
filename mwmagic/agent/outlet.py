"""Standard output, on which events leave."""

from __future__ import annotations

import os

from .wire import CHUNK_BYTES, encode

QUEUE_BYTES = 256 << 10
"""Backpressure: while this much waits on standard output, no logs or packets are queued."""


class Outlet:
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
