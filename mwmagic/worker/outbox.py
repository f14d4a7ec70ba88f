"""What a worker reports, throttled: of values that come too fast the newest count."""

from __future__ import annotations

import json
import os
import threading
import time
from functools import cache
from typing import TYPE_CHECKING, Any

from mwmagic.model.numbers import PACKET_BYTES

from .line import line
from .values import Values

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from .line import Line

__all__ = ["GAP_SECONDS", "Outbox", "farewell", "outbox"]

GAP_SECONDS = 0.05
"""Seconds between two rounds of packets."""

LAST_SECONDS = 0.5
"""Seconds to wait for room for what is left at the end."""

WAITING = 500
"""Messages that wait at the most; of more the oldest go."""

Message = tuple["Mapping[str, Any]", "Mapping[str, Any]"]


class Outbox:
    """Messages on their way out.

    A message that comes within `GAP_SECONDS` of the last round waits for the next one, and
    gives way to a newer one of the same key. A thread sends what waits: the last value
    of a fast loop must not wait for the end of a slow validation. The thread also reads
    tensors, since the process that computes them must not wait for them.

    Parameters
    ----------
    to : Line
        Where they go.
    """

    def __init__(self, to: Line) -> None:
        self._line = to
        self._process = os.getpid()
        self._values = Values()
        self._waiting: dict[Hashable, Message] = {}
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
        """Whether a message would go out now."""
        return time.monotonic() - self._sent >= GAP_SECONDS

    def put(self, key: Hashable, message: Mapping[str, Any], metrics: Mapping[str, Any]) -> None:
        """Send a message, or have it wait.

        Parameters
        ----------
        key : hashable
            What the message is about; a newer one with the same key takes its place.
        message : mapping
            What it says besides, as JSON values.
        metrics : mapping
            Its numbers, of any type that `float` takes.
        """
        if not self.open:
            return
        with self._adding:
            self._waiting.pop(key, None)  # the newest goes last
            self._waiting[key] = (message, metrics)
            if len(self._waiting) > WAITING:
                del self._waiting[next(iter(self._waiting))]
        if self.due() and all(type(value) in (int, float) for value in metrics.values()):
            self.flush()
        if self._waiting and not self._due.is_set():
            self._wake()

    def flush(self, seconds: float = 0.0) -> None:
        """Send what waits, unless another thread is at it; wait so long for room, in all."""
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

    def _send(self, key: Hashable, message: Message, seconds: float) -> None:
        said, metrics = message
        packet = _packet({**said, "metrics": self._values.numbers(metrics)})
        if packet and not self._line.send(packet, seconds):
            with self._adding:
                self._waiting.setdefault(key, message)  # unless there is a newer one by now

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
    """Return a message as one packet; nothing where it would be too long."""
    packet = json.dumps(message, separators=(",", ":"), allow_nan=False).encode()
    return packet if len(packet) <= PACKET_BYTES else b""


@cache
def outbox() -> Outbox | None:
    """Return this process's outbox; None where nobody listens."""
    to = line()
    return None if to is None else Outbox(to)


def farewell() -> None:
    """Send what still waits, at the end of a worker."""
    one = outbox()
    if one is not None:
        one.flush(LAST_SECONDS)
