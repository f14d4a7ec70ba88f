"""The latest lines of all tasks, merged and numbered."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .tail import Line

__all__ = ["Journal"]

LINES = 10_000
"""Lines kept; the page keeps as many."""

CHARACTERS = 4 * 2**20
"""Characters kept in all of them."""


class Journal:
    """A ring of numbered lines.

    Attributes
    ----------
    first : int
        The number of the oldest line that is kept.
    """

    def __init__(self) -> None:
        self.first = 0
        self._lines: deque[tuple[int, Line]] = deque()
        self._size = 0

    @property
    def next(self) -> int:
        """The number that the next line will get."""
        return self.first + len(self._lines)

    def add(self, task: int, lines: Iterable[Line]) -> None:
        """Append lines of a task, which is told by its place in the run's list."""
        for line in lines:
            self._lines.append((task, line))
            self._size += len(line.text)
        while len(self._lines) > LINES or self._size > CHARACTERS:
            self._size -= len(self._lines.popleft()[1].text)
            self.first += 1

    def runs(self, start: int, limit: int) -> tuple[list[list[Any]], int]:
        """Return lines from a number on, those of one task and mark together.

        Parameters
        ----------
        start : int
            The first line's number.
        limit : int
            Characters at the most, if one line alone does not have more.

        Returns
        -------
        runs : list
            ``[task, mark, text]`` each; the text may hold many lines.
        end : int
            The number after the last one.
        """
        runs: list[list[Any]] = []
        end = max(start, self.first)
        while end < self.next and limit > 0:
            task, line = self._lines[end - self.first]
            if runs and runs[-1][:2] == [task, line.mark]:
                runs[-1][2].append(line.text)
            else:
                runs.append([task, line.mark, [line.text]])
                limit -= 12
            limit -= len(line.text) + 2
            end += 1
        return [[task, mark, "\n".join(texts)] for task, mark, texts in runs], end
