"""The bytes of a growing log as lines, each marked as noise, an error, plain text or our own frame.

The layers are: what a terminal would show, which of it is noise, and which is an error.
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from .noise import Noise
from .terminal import Terminal, clipped, plain
from .tracebacks import HEAD, Ours

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from . import Guard

__all__ = [
    "LINE_CHARACTERS",
    "Fold",
    "Follower",
    "Hidden",
    "Lag",
    "Lines",
    "LogLine",
    "Mark",
    "RawLines",
    "shortened",
]

LINE_CHARACTERS = 4000
"""How much of a line is shown."""

_FATAL = re.compile(r"Fatal Python error: |Segmentation fault|terminate called after")
_SYNTAX = re.compile(r'  File ".+", line \d+$')
"""The first line of a syntax error that Python prints without a traceback's head."""


class Mark(IntEnum):
    """What a line means to a reader."""

    PLAIN = 0
    NOISE = 1
    ERROR = 2
    NOTE = 3
    OURS = 4


class LogLine(NamedTuple):
    """A finished line: its mark, and its text without the newline."""

    mark: int
    text: str


@dataclass(frozen=True)
class Hidden:
    """Consecutive lines that mean nothing to a user: how many."""

    count: int


class Fold:
    """Replaces each stretch of notices by one `Hidden`, though its lines come bit by bit.

    Frames of mwmagic's own are left out without a word, as Keras does with its own.
    """

    def __init__(self) -> None:
        self._count = 0

    def feed(self, lines: Iterable[LogLine]) -> Iterator[str | Hidden]:
        """Yield what the next lines show; notices once they end."""
        for line in lines:
            if line.mark == Mark.NOISE:
                self._count += 1
            elif line.mark != Mark.OURS:
                yield from self.close()
                yield line.text

    def close(self) -> Iterator[Hidden]:
        """Yield the notices that came last."""
        count, self._count = self._count, 0
        if count:
            yield Hidden(count)


def shortened(line: LogLine) -> LogLine:
    """Return a line, with its text cut off after `LINE_CHARACTERS`."""
    short = clipped(line.text, LINE_CHARACTERS)
    return line if short == line.text else LogLine(line.mark, short + " …")


class Lines:
    """Turns the bytes of one log, which may be split anywhere, into marked lines."""

    def __init__(self, guard: Guard, *, ansi: bool = False) -> None:
        self._guard = guard
        self._ansi = ansi
        self._terminal = Terminal(ansi=ansi)
        self._noise = Noise()
        self._ours = Ours()
        self._tracing = False

    @property
    def current(self) -> str:
        """The line that has not ended yet, as a terminal shows it now."""
        return self._terminal.current

    def feed(self, data: bytes) -> list[LogLine]:
        """Take the next bytes and return the lines that they finished."""
        texts = self._guard.call("terminal", None, self._terminal.feed, data)
        if texts is None:
            self._terminal = Terminal(ansi=self._ansi)  # the old one's state may be anything
        return [self._line(text) for text in texts or ()]

    def close(self) -> list[LogLine]:
        """Return the last line if it has not ended and is not empty."""
        return [self._line(text) for text in self._guard.call("terminal", [], self._terminal.close)]

    def _line(self, text: str) -> LogLine:
        if self._guard.call("notices", False, self._noise.hides, text):  # noqa: FBT003 - neutral
            return LogLine(Mark.NOISE, text)
        bare = plain(text)
        if self._ours.hides(bare):
            return LogLine(Mark.OURS, text)
        return LogLine(self._error(bare), text)

    def _error(self, text: str) -> Mark:
        """Mark a traceback, from its head to the line that names the exception."""
        if HEAD in text or _FATAL.match(text) or _SYNTAX.match(text):
            self._tracing = True
            return Mark.ERROR
        traced, self._tracing = self._tracing, self._tracing and text[:1] in (" ", "\t", "")
        return Mark.ERROR if traced else Mark.PLAIN


class RawLines:
    """Turns the bytes of one log into lines that hold all that a terminal would not show."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._parts: list[str] = []

    @property
    def current(self) -> str:
        """The line that has not ended yet."""
        return "".join(self._parts)

    def feed(self, data: bytes) -> list[LogLine]:
        """Take the next bytes and return the lines that they finished."""
        first, *others = self._decoder.decode(data).split("\n")
        self._parts.append(first)
        if not others:
            return []
        ended = [self.current, *others[:-1]]
        self._parts = [others[-1]]
        return [LogLine(Mark.PLAIN, text) for text in ended]

    def close(self) -> list[LogLine]:
        """Return the last line if it has not ended and is not empty."""
        last = self.current + self._decoder.decode(b"", final=True)
        self._parts.clear()
        return [LogLine(Mark.PLAIN, last)] if last else []


_READ_BYTES = 2**20
"""The most that is read at a time."""

KEPT_BYTES = 2**18
"""Where a follower that has fallen behind continues, before the end of the log."""

PARTIAL_BYTES = 2**17
"""How much is passed over, at the most, to begin with a line's first character."""


@dataclass(frozen=True)
class Lag:
    """How far a follower may fall behind before it jumps ahead."""

    bytes: int
    """The most that it may have left to read."""
    words: Callable[[int], str]
    """Returns the line that stands for a number of lines that are left out."""


class Follower:
    """Reads the finished lines of a log that is being written.

    A `sequel` is a file that continues the log, with its first byte at the offset where the log
    ends.
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

    def read(self, limit: int = _READ_BYTES) -> list[LogLine]:
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
                chunk = file.read(min(left, _READ_BYTES))
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
