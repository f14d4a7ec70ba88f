"""Merges the lines that several tasks print alike."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

__all__ = ["Chorus"]

HELD_SECONDS = 0.25
"""How long a line waits for the other tasks to print it as well."""


@dataclass
class _Line:
    """A line, and the tasks that have printed it."""

    text: str
    since: float
    tasks: list[str] = field(default_factory=list)


class Chorus:
    """Gives out each line once with all the tasks that print it, in the order of first lines.

    Lines are the same only if every character is. The same line of a task that prints it twice is
    two lines.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._said: dict[str, Counter[str]] = {}
        self._waiting: dict[tuple[str, int], _Line] = {}

    def hear(self, task: str, text: str, time: float) -> None:
        """Take a line of a task, at a time in seconds."""
        counts = self._said.setdefault(task, Counter())
        counts[text] += 1
        key = (text, counts[text])
        self._waiting.setdefault(key, _Line(text, time)).tasks.append(task)

    def due(self, time: float | None = None) -> list[tuple[tuple[str, ...], str]]:
        """Return the lines that wait for no other task, up to the first that does."""
        found = []
        for key, line in list(self._waiting.items()):
            late = time is None or time - line.since >= HELD_SECONDS
            if not late and len(line.tasks) < self._size:
                break
            del self._waiting[key]
            found.append((tuple(line.tasks), line.text))
        return found
