"""Splits a log into lines, and each line into the drafts that were drawn over one another.

A terminal shows a mixture: a short bar drawn over a longer one keeps the last digits of
the longer one, which then extend a number of the short one. Numbers must therefore be
read from the drafts.
"""

from __future__ import annotations

import re

from .terminal import plain

_DRAWN = re.compile(r"[\r\b\x1b]")
_DRAFT_CHARACTERS = 10_000  # how much of one draft is kept


class Drafts:
    """Follows one stream, whose text may be split anywhere."""

    def __init__(self) -> None:
        self._first = ""  # first draft of the line that has not ended
        self._last = ""  # last complete draft of it
        self._rest = ""  # the draft that is being written

    @property
    def current(self) -> str:
        """The current draft of the line that has not ended, without ANSI codes."""
        return _clean(self._rest) or self._last

    def write(self, text: str) -> list[tuple[str, str]]:
        """Take the next text and return the first and last draft of each line it ended."""
        *ended, tail = text.split("\n")
        drawn = len(ended) if _DRAWN.search(text) else min(1, len(ended))
        lines = [self._end(piece) for piece in ended[:drawn]]
        lines += [(piece, piece) for piece in ended[drawn:]]
        self._draw(tail)
        return lines

    def _end(self, piece: str) -> tuple[str, str]:
        self._draw(piece)
        last = self.current
        line = (self._first or last, last)
        self._first = self._last = self._rest = ""
        return line

    def _draw(self, piece: str) -> None:
        *drawn, rest = (self._rest + piece).split("\r")
        for draft in filter(None, map(_clean, drawn)):
            self._first = self._first or draft
            self._last = draft
        self._rest = rest[:_DRAFT_CHARACTERS]


def _clean(draft: str) -> str:
    text = plain(draft.replace("\b", ""))
    return text if text.strip() else ""
