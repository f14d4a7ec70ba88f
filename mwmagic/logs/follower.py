"""A growing log as marked lines, for the command line, the magics and the dashboard."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .lines import LINE_CHARACTERS, Line, Lines, Mark

if TYPE_CHECKING:
    from pathlib import Path

    from .guard import Guard

__all__ = ["Follower"]

READ_BYTES = 2**20
"""The most that is read at a time."""

KEPT_BYTES = 2**18
"""Where a follower that has fallen behind continues, before the end of the log."""


class Follower:
    """Reads the finished lines of a log that is being written.

    Parameters
    ----------
    path : Path
        The log; it may not exist yet.
    guard : Guard
        Where the faults of parsers are reported.
    lag_bytes : int, optional
        How far the follower may fall behind before it jumps ahead, which it notes in a
        line of its own. By default it never jumps.
    ansi : bool
        Keep the colours.
    """

    def __init__(
        self, path: Path, guard: Guard, *, lag_bytes: int | None = None, ansi: bool = False
    ) -> None:
        self.path = path
        self._guard = guard
        self._lag_bytes = lag_bytes
        self._offset = 0
        self._ansi = ansi
        self._lines = Lines(guard, ansi=ansi)

    @property
    def behind(self) -> int:
        """The number of bytes that have not been read yet."""
        try:
            return self.path.stat().st_size - self._offset
        except FileNotFoundError:
            return 0

    @property
    def current(self) -> str:
        """The line that has not ended yet, as a terminal shows it now."""
        return self._lines.current

    def read(self, limit: int = READ_BYTES) -> list[Line]:
        """Read at most `limit` further bytes and return the lines that they finished."""
        behind = self.behind
        if behind <= 0:
            return []
        jumps = self._lag_bytes is not None and behind > self._lag_bytes
        jumped = self._jump(behind) if jumps else []
        with self.path.open("rb") as file:
            file.seek(self._offset)
            data = file.read(limit)
        self._offset += len(data)
        return jumped + self._lines.feed(data)

    def rest(self) -> list[Line]:
        """Read everything that is available."""
        lines: list[Line] = []
        while self.behind > 0:
            lines += self.read()
        return lines

    def close(self) -> list[Line]:
        """Return the last line if it has not ended and is not empty."""
        return self._lines.close()

    def _jump(self, behind: int) -> list[Line]:
        """Jump to a line near the end, and return a note on how many lines are left out."""
        left, count = behind - KEPT_BYTES, 0
        with self.path.open("rb") as file:
            file.seek(self._offset)
            while left > 0:
                chunk = file.read(min(left, READ_BYTES))
                count += chunk.count(b"\n")
                left -= len(chunk)
            count += file.readline(LINE_CHARACTERS).endswith(b"\n")
            self._offset = file.tell()
        self._lines = Lines(self._guard, ansi=self._ansi)
        return [Line(Mark.NOTE, f"{count:,} lines left out here; the file has them all")]
