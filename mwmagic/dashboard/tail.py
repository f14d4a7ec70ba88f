"""The lines of a log that grows, each marked with what it is to a reader."""

from __future__ import annotations

import re
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from mwmagic.logs.noise import Noise
from mwmagic.logs.terminal import Terminal

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Line", "Mark", "Tail"]

BEHIND = 2**20
"""Bytes: a reader further behind than this jumps ahead; a page keeps fewer lines anyway."""

KEPT = 2**18
"""Bytes before the log's end at which such a jump lands."""

LONGEST = 4000
"""Characters of a line that are shown."""

_CHUNK = 2**20
_HEAD = "Traceback (most recent call last):"
_FATAL = re.compile(r"Fatal Python error: |Segmentation fault|terminate called after")


class Mark(IntEnum):
    """What a line is to a reader."""

    NOISE = 1
    ERROR = 2
    NOTE = 3


class Line(NamedTuple):
    """A finished line: its mark, and its text without its end."""

    mark: int
    text: str


class Tail:
    """Follow one log.

    Parameters
    ----------
    path : Path
        The file; it may not exist yet.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0
        self._begin()

    def _begin(self) -> None:
        self._terminal = Terminal()
        self._noise = Noise()
        self._tracing = False

    @property
    def behind(self) -> int:
        """Bytes that are there and were not read."""
        try:
            return self.path.stat().st_size - self._offset
        except FileNotFoundError:
            return 0

    @property
    def current(self) -> str:
        """The line that has not ended yet, as a terminal shows it now."""
        return self._terminal.current[:LONGEST]

    def read(self, limit: int) -> list[Line]:
        """Read at most `limit` further bytes and return the lines they finished."""
        behind = self.behind
        if behind <= 0:
            return []
        jumped = self._jump(behind) if behind > BEHIND else []
        with self.path.open("rb") as file:
            file.seek(self._offset)
            data = file.read(limit)
        self._offset += len(data)
        return jumped + [self._line(text) for text in self._terminal.feed(data)]

    def close(self) -> list[Line]:
        """Return the last line, if it did not end and shows anything."""
        return [self._line(text) for text in self._terminal.close()]

    def _jump(self, behind: int) -> list[Line]:
        """Go on near the end, at the start of a line; tell how many lines are left out."""
        left, count = behind - KEPT, 0
        with self.path.open("rb") as file:
            file.seek(self._offset)
            while left > 0:
                chunk = file.read(min(left, _CHUNK))
                count += chunk.count(b"\n")
                left -= len(chunk)
            count += file.readline(LONGEST).endswith(b"\n")
            self._offset = file.tell()
        self._begin()
        return [Line(Mark.NOTE, f"{count:,} lines left out here; the file has them all")]

    def _line(self, text: str) -> Line:
        mark = Mark.NOISE if self._noise.hides(text) else self._error(text)
        return Line(mark, text if len(text) <= LONGEST else text[:LONGEST] + " …")

    def _error(self, text: str) -> int:
        """Mark a traceback, from its head to the line that names the exception."""
        if _HEAD in text or _FATAL.match(text):
            self._tracing = True
            return Mark.ERROR
        traced, self._tracing = self._tracing, self._tracing and text[:1] in (" ", "\t", "")
        return Mark.ERROR if traced else 0
