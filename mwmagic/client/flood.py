"""Keeps what the tasks of a live cell print to what a notebook can hold."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from mwmagic.logs.terminal import clipped
from mwmagic.words.live import skipped_words

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Flood"]

BURST_CHARACTERS = 200_000
"""How much is shown at once; JupyterLab takes a million characters in a second."""

STEADY_CHARACTERS = 10_000
"""How much more each second."""

EXTRA_LINE_CHARACTERS = 50
"""How many characters a line counts besides its own."""

LONGEST_CHARACTERS = 20_000
"""How much of a line is shown."""

LAST_LINES = 100
"""How many of the last lines are shown in any case."""


class Flood:
    """Shows lines as they come; of too many the first and the last, with how many are left out."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._room = float(BURST_CHARACTERS)
        self._then: float | None = None
        self._held: deque[str] = deque()
        self._skipped = 0

    def pass_time(self, now: float) -> None:
        """Make room as time passes, and show what was held back once there is enough."""
        passed = 0.0 if self._then is None else now - self._then
        self._room = min(self._room + STEADY_CHARACTERS * passed, BURST_CHARACTERS)
        self._then = now
        if self._held and self._room > BURST_CHARACTERS / 2:
            self.release()

    def take(self, text: str) -> None:
        """Show a line, or hold it back."""
        short = clipped(text, LONGEST_CHARACTERS)
        line = text if short == text else f"{short} …"
        if self._held or self._room < len(line) + EXTRA_LINE_CHARACTERS:
            self._held.append(line)
            if len(self._held) > LAST_LINES:
                self._held.popleft()
                self._skipped += 1
        else:
            self._show(line)

    def release(self) -> None:
        """Show the last lines that were held back."""
        if self._skipped:
            self._say(skipped_words(self._skipped))
        held = list(self._held)
        self._held.clear()
        self._skipped = 0
        for line in held:
            self._show(line)

    def _show(self, line: str) -> None:
        self._room -= len(line) + EXTRA_LINE_CHARACTERS
        self._say(line)
