"""Has Ctrl-C raise only where nothing can be lost by it."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

__all__ = ["Shield", "shielded"]


class Shield:
    """What Ctrl-C does for a while, in the main thread, where Python handles it."""

    def __init__(self) -> None:
        self.usual: Callable[[int, FrameType | None], Any] | None = None
        self._open = False
        self._late = False

    def came(self, number: int, frame: FrameType | None) -> None:
        """Handle the signal as usual if that is harmless now; otherwise later."""
        self._late = not self._open
        self._open = False
        if not self._late and self.usual is not None:
            self.usual(number, frame)

    @contextmanager
    def open(self) -> Iterator[None]:
        """Let it raise in a block."""
        self._open = True
        try:
            self.settle()
            yield
        finally:
            self._open = False

    def settle(self) -> None:
        """Handle a signal that has come in the meantime."""
        if self._late and self.usual is not None:
            self._late = False
            self.usual(signal.SIGINT, None)


@contextmanager
def shielded() -> Iterator[Shield]:
    """Keep SIGINT's handler from being called in a block, but where the shield is open."""
    shield, usual = Shield(), signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(usual):
        yield shield
        return
    shield.usual = usual
    signal.signal(signal.SIGINT, shield.came)
    try:
        yield shield
    finally:
        signal.signal(signal.SIGINT, usual)
        shield.settle()
