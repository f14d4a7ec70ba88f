"""Turns signals that ask a command to end into exceptions, so that what it started ends too."""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

__all__ = ["INTERRUPTED_CODE", "Terminated", "die", "listening"]

INTERRUPTED_CODE = 130
"""The exit code after Ctrl-C: 128 plus SIGINT's number, as in a shell."""

_NUMBERS = (signal.SIGTERM, signal.SIGHUP)
"""What schedulers, service managers, containers and closing terminals send."""


class Terminated(KeyboardInterrupt):
    """A signal asks this process to end, as Ctrl-C does."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def _raise(number: int, _frame: FrameType | None) -> None:
    raise Terminated(number)


@contextmanager
def listening() -> Iterator[None]:
    """Raise `Terminated` for these signals, except those that are ignored, as under nohup."""
    main = threading.current_thread() is threading.main_thread()
    heard = [one for one in _NUMBERS if main and signal.getsignal(one) is signal.SIG_DFL]
    for number in heard:
        signal.signal(number, _raise)
    try:
        yield
    finally:
        for number in heard:
            signal.signal(number, signal.SIG_DFL)


def die(request: Terminated) -> None:
    """Die of the signal, so that its sender sees that it was obeyed."""
    with suppress(OSError):
        sys.stdout.flush()
    os.kill(os.getpid(), request.number)
