"""The latest lines of all tasks, merged into numbered texts."""

from __future__ import annotations

from collections import deque
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mwmagic.logs.lines import Line

__all__ = ["Journal", "Text"]

KEPT_LINES = 10_000
"""How many lines are kept, here and in the page."""

KEPT_CHARACTERS = 4 * 2**20
"""How many characters are kept in all."""

TEXT_LINES, TEXT_CHARACTERS = 100, 4000
"""A text ends with the line that reaches one of these limits.

Each text is one element in a page: an element for each line takes four times as long.
"""

EXTRA_CHARACTERS = 12
"""Overhead of a text, counted in characters."""


class Text(NamedTuple):
    """Consecutive lines of one task."""

    task: int
    mark: int
    text: str

    @property
    def lines(self) -> int:
        """The number of lines."""
        return self.text.count("\n") + 1


class Journal:
    """A ring of numbered texts.

    Attributes
    ----------
    first : int
        The number of the oldest text that is kept.
    """

    def __init__(self) -> None:
        self.first = 0
        self._texts: deque[Text] = deque()
        self._lines = self._size = 0

    @property
    def next(self) -> int:
        """The number of the next text."""
        return self.first + len(self._texts)

    def add(self, task: int, lines: Iterable[Line]) -> None:
        """Append lines of the task at this index; -1 means that mwmagic wrote them."""
        for mark, alike in groupby(lines, key=lambda line: line.mark):
            for text in _cut(line.text for line in alike):
                self._keep(Text(task, mark, text))

    def _keep(self, text: Text) -> None:
        self._texts.append(text)
        self._lines += text.lines
        self._size += len(text.text)
        while self._lines > KEPT_LINES or self._size > KEPT_CHARACTERS:
            oldest = self._texts.popleft()
            self._lines -= oldest.lines
            self._size -= len(oldest.text)
            self.first += 1

    def texts(self, start: int, limit: int) -> tuple[list[Text], int]:
        """Return texts, starting at a number.

        Parameters
        ----------
        start : int
            The number of the first text.
        limit : int
            Characters after which no further text is added.

        Returns
        -------
        texts : list of Text
            As many as are kept and the limit allows.
        end : int
            The number after the last text.
        """
        texts: list[Text] = []
        end = max(start, self.first)
        while end < self.next and limit > 0:
            texts.append(self._texts[end - self.first])
            limit -= len(texts[-1].text) + EXTRA_CHARACTERS
            end += 1
        return texts, end


def _cut(lines: Iterable[str]) -> Iterator[str]:
    """Join lines into texts that are not too long."""
    held: list[str] = []
    size = 0
    for line in lines:
        held.append(line)
        size += len(line)
        if len(held) == TEXT_LINES or size >= TEXT_CHARACTERS:
            yield "\n".join(held)
            held, size = [], 0
    if held:
        yield "\n".join(held)
