"""The gang's timers, on the event loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from mwmagic.gang import Due

__all__ = ["Timers"]


class Timers:
    """Timers, one for each thing that becomes due."""

    def __init__(self, expired: Callable[[Due], None]) -> None:
        self._expired = expired
        self._handles: dict[Due, asyncio.TimerHandle] = {}

    def set(self, due: Due, seconds: float) -> None:
        """Set a timer, in place of the one that was set for this before."""
        self.cancel(due)
        loop = asyncio.get_running_loop()
        self._handles[due] = loop.call_later(seconds, self._expire, due)

    def cancel(self, due: Due) -> None:
        """Cancel a timer, if it is set."""
        handle = self._handles.pop(due, None)
        if handle is not None:
            handle.cancel()

    def clear(self) -> None:
        """Cancel all timers."""
        for due in list(self._handles):
            self.cancel(due)

    def _expire(self, due: Due) -> None:
        self._handles.pop(due, None)
        self._expired(due)
