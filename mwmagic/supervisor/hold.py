"""How long a cluster without an owner keeps its machines for the next one."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Hold"]


class Hold:
    """A timer that runs while a cluster is kept.

    Attributes
    ----------
    since, until : float or None
        When the time began and will be over, in seconds of the wall clock; None unless it runs.
    """

    def __init__(self, expired: Callable[[], None]) -> None:
        self._expired = expired
        self._timer: asyncio.TimerHandle | None = None
        self.since: float | None = None
        self.until: float | None = None

    def begin(self, seconds: float) -> None:
        """Begin to wait for an owner."""
        self.end()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._expired)
        self.since = time.time()
        self.until = self.since + seconds

    def end(self) -> None:
        """Wait no longer."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.since = self.until = None
