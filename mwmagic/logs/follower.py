"""A growing log as marked lines, for the command line, the magics and the dashboard."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .lines import LINE_CHARACTERS, Lines, LogLine, Mark, RawLines

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .guard import Guard

__all__ = ["READ_BYTES", "Follower", "Lag"]

READ_BYTES = 2**20
"""The most that is read at a time."""

KEPT_BYTES = 2**18
"""Where a follower that has fallen behind continues, before the end of the log."""

PARTIAL_BYTES = 2**17
"""How much is passed over, at the most, to begin with a line's first character."""


@dataclass(frozen=True)
class Lag:
    """How far a follower may fall behind before it jumps ahead.

    Parameters
    ----------
    bytes : int
        The most that it may have left to read.
    words : callable
        Returns the line that stands for a number of lines that are left out.
    """

    bytes: int
    words: Callable[[int], str]


class Follower:
    """Reads the finished lines of a log that is being written.

    Attributes
    ----------
    sequel : Path or None
        A file that continues the log, with its first byte at the offset where the log ends.
    """

    def __init__(
        self,
        path: Path,
        guard: Guard,
        *,
        lag: Lag | None = None,
        ansi: bool = False,
        raw: bool = False,
    ) -> None:
        self.path = path
        self.sequel: Path | None = None
        self._guard = guard
        self._lag = lag
        self._offset = 0
        self._ansi = ansi
        self._raw = raw
        self._lines = self._layers()

    def _layers(self) -> Lines | RawLines:
        return RawLines() if self._raw else Lines(self._guard, ansi=self._ansi)

    @property
    def behind(self) -> int:
        """The number of bytes that have not been read yet."""
        return max(_size(self.path), _size(self.sequel)) - self._offset

    @property
    def _source(self) -> Path:
        """The file with what is read next."""
        return self.sequel if self.sequel and self._offset >= _size(self.path) else self.path

    def begin(self, offset: int, *, exact: bool = False) -> None:
        """Start over: with the log, at an offset exactly, or with the first line after it."""
        self._lines, self._offset = self._layers(), offset
        if offset and not exact:
            with self._source.open("rb") as file:
                file.seek(offset)
                file.readline(PARTIAL_BYTES)
                self._offset = file.tell()

    @property
    def current(self) -> str:
        """The line that has not ended yet, as a terminal shows it now."""
        return self._lines.current

    def read(self, limit: int = READ_BYTES) -> list[LogLine]:
        """Read at most `limit` further bytes and return the lines that they finished."""
        behind = self.behind
        if behind <= 0:
            return []
        jumped: list[LogLine] = []
        if self._lag is not None and behind > self._lag.bytes:
            jumped = [LogLine(Mark.NOTE, self._lag.words(self._jump(behind)))]
        with self._source.open("rb") as file:
            file.seek(self._offset)
            data = file.read(limit)
        self._offset += len(data)
        return jumped + self._lines.feed(data)

    def rest(self) -> list[LogLine]:
        """Read everything that is available."""
        lines: list[LogLine] = []
        while self.behind > 0:
            lines += self.read()
        return lines

    def close(self) -> list[LogLine]:
        """Return the last line if it has not ended and is not empty."""
        return self._lines.close()

    def _jump(self, behind: int) -> int:
        """Jump to a line near the end, and return how many lines are left out."""
        left, count = behind - KEPT_BYTES, 0
        with self._source.open("rb") as file:
            file.seek(self._offset)
            while left > 0:
                chunk = file.read(min(left, READ_BYTES))
                count += chunk.count(b"\n")
                left -= len(chunk)
            count += file.readline(LINE_CHARACTERS).endswith(b"\n")
            self._offset = file.tell()
        self._lines = self._layers()
        return count


def _size(path: Path | None) -> int:
    """Return how far a file reaches; 0 if there is none."""
    try:
        return 0 if path is None else path.stat().st_size
    except FileNotFoundError:
        return 0
