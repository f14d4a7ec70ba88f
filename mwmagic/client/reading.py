"""Logs as ``%mw_logs`` and ``mwmagic logs`` show them, and the options that both take."""

from __future__ import annotations

import codecs
import re
from collections import deque
from typing import TYPE_CHECKING

from mwmagic.errors import BadArguments, NoRun
from mwmagic.logs.follower import READ_BYTES
from mwmagic.logs.guard import Guard
from mwmagic.logs.lines import LINE_CHARACTERS, Hidden, Lines, LogLine, Mark, fold
from mwmagic.logs.terminal import plain
from mwmagic.model.option import read_count
from mwmagic.model.text import encodable
from mwmagic.words.log import earlier_words, fault_words, hidden_words

from .arguments import reader

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from mwmagic.model.cluster import TaskName
    from mwmagic.model.fault import Fault
    from mwmagic.record import Record

__all__ = ["add_log_options", "pattern", "read", "recorded"]

TAIL_BYTES = (2**18, 2**21, 2**24)
"""How far before the end of a log to look for its last lines, tried in this order."""

TAIL_CHARACTERS = 2**20
"""How long the last lines may be in total."""


def add_log_options(parser: ArgumentParser, *, tail: int) -> None:
    """Add the options that say which logs of a run to show, and how.

    Parameters
    ----------
    parser : ArgumentParser
        The parser of the magic or the command.
    tail : int
        How many lines it shows by default; 0 shows all.
    """
    add = parser.add_argument
    add("task", nargs="?", help="1, worker:1 or chief (default: every task).")
    raw = "Include the framework's notices, mwmagic's frames, and every update of a progress bar."
    add("--raw", action="store_true", help=raw)
    add("--ansi", action="store_true", help="Keep the colours.")
    default = f"{tail}; 0: all" if tail else "all"
    what = f"Only the last N lines (default: {default})."
    count = reader(read_count)
    add("--tail", type=count, default=tail, metavar="N", help=what)
    add("--grep", metavar="PATTERN", help="Only lines that match this regular expression.")
    add("--run", type=count, metavar="NUMBER", help="The run's number (default: the latest run).")
    add("--attempt", type=count, metavar="N", help="The logs of an earlier attempt.")


def recorded(record: Record, given: Namespace) -> Iterator[str]:
    """Yield the lines of a recorded run's logs; a line before each task's names it.

    Parameters
    ----------
    record : Record
        The run.
    given : Namespace
        The options that `add_log_options` adds.

    Raises
    ------
    ClusterError, NoRun
        There is no such task, or it was not started.
    BadArguments
        The pattern is not a valid regular expression.
    """
    if given.task is not None:
        yield from _one(record, given.task, given)
        return
    for task in record.known_tasks():
        yield f"--- {task} ---"
        try:
            yield from _one(record, task, given)
        except NoRun as error:
            yield str(error)


def _one(record: Record, task: TaskName, given: Namespace) -> list[str]:
    path = record.log_path(task, given.attempt)
    return read(path, raw=given.raw, ansi=given.ansi, tail=given.tail, grep=given.grep)


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
    return [*lines, *(f"... {fault_words(fault)}" for fault in faults)]


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

    def feed(self, data: bytes) -> list[LogLine]:
        first, *others = self._decoder.decode(data).split("\n")
        self._parts.append(first)
        if not others:
            return []
        ended = ["".join(self._parts), *others[:-1]]
        self._parts = [others[-1]]
        return [LogLine(Mark.PLAIN, text) for text in ended]

    def close(self) -> list[LogLine]:
        last = "".join(self._parts) + self._decoder.decode(b"", final=True)
        return [LogLine(Mark.PLAIN, last)] if last else []


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
        return [] if count == 0 else [earlier_words(count)]

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
            if isinstance(text, Hidden):
                if self._wanted is None:
                    yield hidden_words(text.count)
            elif self._wanted is None or self._wanted.search(plain(text)):
                yield text

    def _marked(self, start: int) -> Iterator[LogLine]:
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
