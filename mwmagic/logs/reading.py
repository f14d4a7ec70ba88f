"""Logs as ``%mw_logs`` and ``mwmagic logs`` show them."""

from __future__ import annotations

import codecs
import re
from collections import deque
from typing import TYPE_CHECKING

from mwmagic.errors import BadArguments
from mwmagic.model.text import encodable

from .guard import Guard
from .lines import LINE_CHARACTERS, Hidden, Line, Lines, Mark, fold
from .terminal import plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from mwmagic.model.fault import Fault

__all__ = ["pattern", "read"]

READ_BYTES = 2**20
"""What is read at a time."""

TAIL_BYTES = (2**18, 2**21, 2**24)
"""How far before the end of a log to look for its last lines, tried in this order."""

TAIL_CHARACTERS = 2**20
"""How long the last lines may be in total."""


def read(
    path: Path, *, raw: bool = False, ansi: bool = False, tail: int = 0, grep: str | None = None
) -> list[str]:
    """Return a log's lines.

    Parameters
    ----------
    path : Path
        The log.
    raw : bool
        Show every byte, including the framework's notices and every update of a bar.
    ansi : bool
        Keep the colours.
    tail : int
        Show only this many lines from the end; 0 shows all. No more of the log is read than
        necessary.
    grep : str, optional
        Show only lines that match this regular expression.

    Raises
    ------
    BadArguments
        `grep` is not a valid regular expression.
    """
    faults: list[Fault] = []
    view = _View(path, Guard(faults.append), raw=raw, ansi=ansi, grep=grep)
    lines = view.last(tail) if tail > 0 else view.all()
    return [*lines, *(f"... {fault}" for fault in faults)]


def pattern(text: str) -> re.Pattern[str]:
    """Return what ``--grep`` takes, compiled.

    Raises
    ------
    BadArguments
        It is not a valid regular expression.
    """
    try:
        return re.compile(text)
    except re.error as error:
        message = f"--grep {text!r} is not a valid regular expression: {error}"
        raise BadArguments(message) from error


class _Raw:
    """The lines of a log, including what a terminal would not show."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._parts: list[str] = []

    def feed(self, data: bytes) -> list[Line]:
        first, *others = self._decoder.decode(data).split("\n")
        self._parts.append(first)
        if not others:
            return []
        ended = ["".join(self._parts), *others[:-1]]
        self._parts = [others[-1]]
        return [Line(Mark.PLAIN, text) for text in ended]

    def close(self) -> list[Line]:
        last = "".join(self._parts) + self._decoder.decode(b"", final=True)
        return [Line(Mark.PLAIN, last)] if last else []


class _View:
    """One way to show a log."""

    def __init__(
        self, path: Path, guard: Guard, *, raw: bool, ansi: bool, grep: str | None
    ) -> None:
        self._path = path
        self._guard = guard
        self._raw = raw
        self._ansi = ansi
        self._wanted = None if grep is None else pattern(grep)

    def all(self) -> list[str]:
        """Return all lines."""
        lines = self._lines(0)
        return list(lines) if self._raw else list(map(self._short, lines))

    def last(self, count: int) -> list[str]:
        """Return the last lines, preceded by a note on how many are left out."""
        kept, before = self._found(count)
        shown = deque(map(self._short, kept))
        while len(shown) > 1 and sum(map(len, shown)) > TAIL_CHARACTERS:
            shown.popleft()
        if before is not None:
            before += len(kept) - len(shown)
        return [*self._left_out(before), *shown]

    def _found(self, count: int) -> tuple[Sequence[str], int | None]:
        """Return the last lines, and how many precede them, if that is known."""
        size = self._path.stat().st_size
        for span in TAIL_BYTES if self._wanted is None else ():
            start = max(0, size - span)
            kept, all_of = _last(self._lines(start), count)
            if start == 0 or all_of >= count or span == TAIL_BYTES[-1]:
                return kept, all_of - len(kept) if start == 0 else None
        kept, all_of = _last(self._lines(0), count)
        return kept, all_of - len(kept)

    def _left_out(self, count: int | None) -> list[str]:
        if count == 0:
            return []
        what = "earlier lines" if count is None else f"{count} earlier lines"
        return [f"... {what} not shown, `--tail 0` shows them"]

    def _short(self, line: str) -> str:
        """Return a line as it is shown: a long one is cut off and names the file."""
        if len(line) <= LINE_CHARACTERS:
            return line
        place = encodable(str(self._path))
        return f"{line[:LINE_CHARACTERS]} … ({len(line):,} characters; see {place})"

    def _lines(self, start: int) -> Iterator[str]:
        """Yield the lines to show, from an offset in the log on."""
        if self._raw:
            texts: Iterable[str | Hidden] = (line.text for line in self._marked(start))
        else:
            texts = fold(self._marked(start))
        for text in texts:
            hidden = isinstance(text, Hidden)
            if self._wanted is None:
                yield f"{text}, `--raw` shows them" if hidden else str(text)
            elif not hidden and self._wanted.search(plain(str(text))):
                yield str(text)

    def _marked(self, start: int) -> Iterator[Line]:
        layers = _Raw() if self._raw else Lines(self._guard, ansi=self._ansi)
        with self._path.open("rb") as file:
            file.seek(start)
            if start:
                file.readline(TAIL_BYTES[0] // 2)  # the rest of a line
            while data := file.read(READ_BYTES):
                yield from layers.feed(data)
        yield from layers.close()


def _last(lines: Iterable[str], count: int) -> tuple[Sequence[str], int]:
    """Return the last `count` lines, and the number of all lines."""
    kept: deque[str] = deque(maxlen=count)
    number = 0
    for line in lines:
        kept.append(line)
        number += 1
    return kept, number
