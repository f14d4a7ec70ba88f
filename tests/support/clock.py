"""A clock that skips the time in which nothing happens, for tests of what takes many seconds."""

from __future__ import annotations

import asyncio
import selectors
import time

QUIET_SECONDS = 0.002
"""How long nothing must happen before time is skipped: threads and sockets take real time."""

_real = time.monotonic


class _Selector(selectors.DefaultSelector):
    """Waits only briefly, and then puts the clock forward."""

    ahead = 0.0

    def select(self, timeout=None):
        found = super().select(timeout if timeout is None else min(timeout, QUIET_SECONDS))
        if not found and timeout is not None:
            self.ahead += max(timeout - QUIET_SECONDS, 0.0)
        return found


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self):
        self.skipping = _Selector()
        super().__init__(self.skipping)

    def time(self):
        return _real() + self.skipping.ahead


def run_skipping(monkeypatch, coroutine):
    """Run a coroutine with a monotonic clock that skips the time in which nothing happens."""
    loop = _Loop()
    with monkeypatch.context() as patch:
        patch.setattr(time, "monotonic", loop.time)
        try:
            return loop.run_until_complete(coroutine)
        finally:
            for task in asyncio.all_tasks(loop):
                task.cancel()
            loop.run_until_complete(asyncio.sleep(0))
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()
