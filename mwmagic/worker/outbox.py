"""Throttles what a worker reports: of values that come too fast, the newest are sent."""

from __future__ import annotations

import json
import os
import threading
import time
from functools import cache
from typing import TYPE_CHECKING, Any

from mwmagic.model.values import REPORT_BYTES, counted

from .line import line
from .values import Values

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from .line import Line

__all__ = ["GAP_SECONDS", "Outbox", "farewell", "outbox"]

GAP_SECONDS = 0.05
"""Seconds between two rounds of packets."""

LAST_SECONDS = 0.5
"""Time limit for sending what is left at the end."""

WAITING_LIMIT = 500
"""The most messages that wait; beyond that the oldest are dropped."""

Outgoing = tuple["Mapping[str, Any]", "Mapping[str, Any]"]


class Outbox:
    """Messages on their way out.

    A message that comes within `GAP_SECONDS` of the last round waits for the next one, and
    a newer message with the same key replaces it. A thread sends what waits: the last value
    of a fast loop must not wait for the end of a slow validation. The thread also reads
    tensors, so that the training loop need not wait for their values.
    """

    def __init__(self, to: Line) -> None:
        self._line = to
        self._process = os.getpid()
        self._values = Values()
        self._waiting: dict[Hashable, Outgoing] = {}
        self._adding = threading.RLock()  # a signal's handler may report, too
        self._sending = threading.RLock()
        self._due = threading.Event()
        self._thread: threading.Thread | None = None
        self._sent = 0.0

    @property
    def open(self) -> bool:
        """Whether anything reaches the supervisor from this process."""
        return self._line.open and os.getpid() == self._process

    def due(self) -> bool:
        """Return whether a message would be sent at once."""
        return time.monotonic() - self._sent >= GAP_SECONDS

    def put(self, key: Hashable, message: Mapping[str, Any], metrics: Mapping[str, Any]) -> None:
        """Send a message, or let it wait."""
        if not self.open:
            return
        with self._adding:
            self._waiting.pop(key, None)  # the newest goes last
            self._waiting[key] = (message, metrics)
            if len(self._waiting) > WAITING_LIMIT:
                del self._waiting[next(iter(self._waiting))]
        if self.due() and all(type(value) in (int, float) for value in metrics.values()):
            self.flush()
        if self._waiting and not self._due.is_set():
            self._wake()

    def flush(self, seconds: float = 0.0) -> None:
        """Send what waits, unless another thread is doing so; wait that long for room in total."""
        if not self.open or not self._sending.acquire(timeout=seconds):
            return
        try:
            with self._adding:
                waiting, self._waiting = self._waiting, {}
            self._sent = time.monotonic()
            for key, message in waiting.items():
                left = self._sent + seconds - time.monotonic()
                self._send(key, message, max(left, 0.0))
        finally:
            self._sending.release()

    def _send(self, key: Hashable, message: Outgoing, seconds: float) -> None:
        said, metrics = message
        packet = _packet({**said, "metrics": self._values.numbers(metrics)})
        if len(packet) > REPORT_BYTES:
            self._refuse(len(metrics), len(packet))
        elif not self._line.send(packet, seconds):
            with self._adding:
                self._waiting.setdefault(key, message)  # unless there is a newer one by now

    def _refuse(self, count: int, size: int) -> None:
        self._values.refuse(
            f"a set of {counted(count, 'metric')}",
            f"they take {size} bytes, and a report holds {REPORT_BYTES}; shorten their names, "
            "or report fewer at once",
        )

    def _wake(self) -> None:
        self._due.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="mwmagic-report", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while self.open:
            self._due.wait()
            time.sleep(max(0.0, self._sent + GAP_SECONDS - time.monotonic()))
            self._due.clear()
            self.flush()
            if self._waiting:  # the line was full
                time.sleep(GAP_SECONDS)
                self._due.set()


def _packet(message: Mapping[str, Any]) -> bytes:
    """Return a message as one packet."""
    return json.dumps(message, separators=(",", ":"), allow_nan=False).encode()


@cache
def outbox() -> Outbox | None:
    """Return this process's outbox; None if it has no line."""
    to = line()
    return None if to is None else Outbox(to)


def farewell() -> None:
    """Send what still waits, at the end of a worker."""
    one = outbox()
    if one is not None:
        one.flush(LAST_SECONDS)
