"""Has Ctrl-C raise only where nothing can be lost by it."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

__all__ = ["Shield"]


class Shield:
    """Keeps SIGINT's handler from being called in a block, but for its `gap`s.

    Where the signal came in the meantime, the handler is called in the next gap, or after the
    block. In other threads than the main one, where Python calls no handlers, it does nothing.
    """

    def __init__(self) -> None:
        self.gap = _Gap(self)
        self.open = False
        self._usual: Callable[[int, FrameType | None], Any] | None = None
        self._late = False

    def __enter__(self) -> Shield:  # noqa: PYI034 - Self needs Python 3.11
        usual = signal.getsignal(signal.SIGINT)
        if callable(usual) and threading.current_thread() is threading.main_thread():
            self._usual = usual
            signal.signal(signal.SIGINT, self._came)
        return self

    def __exit__(self, *_: object) -> None:
        if self._usual is not None:
            signal.signal(signal.SIGINT, self._usual)
            self.settle()

    def _came(self, number: int, frame: FrameType | None) -> None:
        if self.open:
            self._call(number, frame)
        else:
            self._late = True

    def settle(self) -> None:
        """Handle a signal that has come in the meantime."""
        if self._late:
            self._late = False
            self._call(signal.SIGINT, None)

    def _call(self, number: int, frame: FrameType | None) -> None:
        """Call the handler; where it raises, the gap is over."""
        was, self.open = self.open, False
        if self._usual is not None:
            self._usual(number, frame)
        self.open = was


class _Gap:
    """A block within that of a shield, in which the handler is called."""

    def __init__(self, shield: Shield) -> None:
        self._shield = shield

    def __enter__(self) -> None:
        self._shield.open = True
        self._shield.settle()

    def __exit__(self, *_: object) -> None:
        self._shield.open = False
