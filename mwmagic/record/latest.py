"""A writer that skips all but the latest of many values, on a thread."""

from __future__ import annotations

import threading
import time
import traceback
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Latest"]

T = TypeVar("T")


PAUSE_RATIO = 4.0
"""How many times as long as a write took the next one waits, if that is longer."""


class Latest(Generic[T]):
    """Passes the latest value to a function, on a thread that lives while there is work."""

    def __init__(self, write: Callable[[T], None], seconds: float) -> None:
        self._write = write
        self._seconds = seconds
        self._changed = threading.Condition()
        self._values: list[T] = []
        self._thread: threading.Thread | None = None
        self._hurried = False
        self._writing = False

    def put(self, value: T) -> None:
        """Write a value soon, instead of any that is still waiting."""
        with self._changed:
            self._values = [value]
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="mwmagic-record")
                self._thread.daemon = True
                self._thread.start()

    def flush(self, timeout: float) -> bool:
        """Write what is waiting now; return whether that was done within the timeout."""
        with self._changed:
            self._hurried = True
            self._changed.notify_all()
            return self._changed.wait_for(self._idle, timeout)

    def _idle(self) -> bool:
        return not self._values and not self._writing

    def _work(self) -> None:
        began = time.monotonic()
        while self._take():
            pause = max(self._seconds, PAUSE_RATIO * (time.monotonic() - began))
            with self._changed:
                self._changed.wait_for(lambda: self._hurried, pause)
            began = time.monotonic()

    def _take(self) -> bool:
        """Write the latest value; without one, end this thread."""
        with self._changed:
            if not self._values:
                self._thread = None
                return False
            value = self._values.pop()
            self._writing, self._hurried = True, False
        try:
            self._write(value)
        except Exception:  # noqa: BLE001 - the next value must be written nevertheless
            traceback.print_exc()
        finally:
            with self._changed:
                self._writing = False
                self._changed.notify_all()
        return True
