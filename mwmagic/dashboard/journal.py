"""What a page gets of programs' output: numbered texts, whole logs to download, and figures."""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections import deque
from dataclasses import dataclass, field
from itertools import groupby, takewhile
from typing import TYPE_CHECKING, NamedTuple

from mwmagic.record import inside
from mwmagic.words.live import ranks_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from mwmagic.logs.lines import LogLine
    from mwmagic.record import RunPaths

__all__ = [
    "DOWNLOAD_BYTES",
    "PIECE_BYTES",
    "Figure",
    "Journal",
    "Text",
    "Whole",
    "last_figures",
    "pictures",
]

MOST_LINES = 10_000
"""How many lines of each task are kept, here and in the page."""

MOST_CHARACTERS = 8 * 2**20
"""How many characters of all tasks are kept; beyond that, the task with most of them loses some."""

TEXT_LINES, TEXT_CHARACTERS = 100, 4000
"""A text ends with the line that reaches one of these limits.

Each text is one element in a page: an element for each line takes four times as long.
"""

EXTRA_CHARACTERS = 16
"""Overhead of a text in a packet, counted in characters."""

OVERHEAD_CHARACTERS = 200
"""Overhead of a text in memory, counted in characters."""


class Text(NamedTuple):
    """Consecutive lines of one task, numbered in the order of arrival."""

    number: int
    task: int
    mark: int
    text: str

    @property
    def lines(self) -> int:
        """The number of lines."""
        return self.text.count("\n") + 1

    @property
    def size(self) -> int:
        """How much memory it takes, counted in characters."""
        return len(self.text) + OVERHEAD_CHARACTERS


@dataclass
class _TaskTexts:
    """What is kept of one task: the numbers of its texts, their sizes, and whether some went."""

    numbers: deque[int] = field(default_factory=deque)
    lines: int = 0
    size: int = 0
    cut: bool = False


class Journal:
    """The newest texts of each task, so that none is lost because another one prints more.

    The next text gets the number `next`.
    """

    def __init__(self) -> None:
        self.next = 0
        self._texts: dict[int, Text] = {}  # by number, in ascending order
        self._tasks: dict[int, _TaskTexts] = {}
        self._size = 0

    def first(self, task: int) -> int:
        """Return the number of a task's oldest text; 0 while nothing was dropped before it."""
        texts = self._tasks.get(task)
        return texts.numbers[0] if texts and texts.cut and texts.numbers else 0

    def add(self, task: int, lines: Iterable[LogLine]) -> None:
        """Append lines of the task at this index; -1 means that mwmagic wrote them."""
        for mark, alike in groupby(lines, key=lambda line: line.mark):
            for text in _cut(line.text for line in alike):
                self._keep(Text(self.next, task, mark, text))

    def _keep(self, text: Text) -> None:
        self._texts[self.next] = text
        texts = self._tasks.setdefault(text.task, _TaskTexts())
        texts.numbers.append(self.next)
        self.next += 1
        self._count(texts, text.lines, text.size)
        while texts.lines > MOST_LINES:
            self._drop(texts)
        while self._size > MOST_CHARACTERS:
            self._drop(max(self._tasks.values(), key=lambda one: one.size))

    def _drop(self, texts: _TaskTexts) -> None:
        texts.cut = True
        oldest = self._texts.pop(texts.numbers.popleft())
        self._count(texts, -oldest.lines, -oldest.size)

    def _count(self, texts: _TaskTexts, lines: int, size: int) -> None:
        texts.lines += lines
        texts.size += size
        self._size += size

    def texts(self, start: int, limit: int) -> tuple[list[Text], int]:
        """Return texts, starting at a number."""
        texts: list[Text] = []
        for number in reversed([*takewhile(lambda one: one >= start, reversed(self._texts))]):
            if limit <= 0:
                return texts, number
            texts.append(self._texts[number])
            limit -= len(texts[-1].text) + EXTRA_CHARACTERS
        return texts, self.next


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


DOWNLOAD_BYTES = 200 * 2**20
"""Maximum that a page downloads."""

PIECE_BYTES = 2**19
"""How much is sent to a page at a time."""


class Whole:
    """A snapshot of logs; what is appended later is left out."""

    def __init__(self, paths: Sequence[Path]) -> None:
        several = len(paths) > 1
        self._parts = [
            (f"==> {path.name} <==\n".encode() if several else b"", path, path.stat().st_size)
            for path in paths
            if path.exists()
        ]

    @property
    def size(self) -> int:
        """Total size in bytes."""
        return sum(len(head) + size for head, _, size in self._parts)

    def piece(self, start: int) -> bytes:
        """Return a piece that starts at an offset; it is empty at the end."""
        for head, path, size in self._parts:
            if start < len(head):
                return head[start:]
            start -= len(head)
            if start < size:
                with path.open("rb") as file:
                    file.seek(start)
                    return file.read(min(PIECE_BYTES, size - start))
            start -= size
        return b""


FIGURES_SHOWN_LIMIT = 4
"""How many are shown: the last ones. The record has more."""

FIGURE_BYTES = 250_000
"""The largest that is shown; base64 adds a third, and Jupyter forwards a megabyte a second."""

_NAME = re.compile(r"(\w+)-(\d+)\.figure-(\d+)\.png")

_BEGIN, _END = b"\x89PNG\r\n\x1a\n", b"IEND\xaeB\x60\x82"
"""The first and the last bytes of a whole PNG."""


@dataclass
class Figure:
    """A figure, and the tasks that showed it."""

    key: str
    """The same for the same picture."""
    number: int
    """Its number among those of its first task."""
    source: str
    """A data URL; empty if the picture is too large."""
    place: str
    """Its path, from the record's folder on."""
    tasks: list[str] = field(default_factory=list)

    @property
    def caption(self) -> str:
        """What stands below it."""
        ranks = ranks_words(self.tasks)
        name = self.tasks[0] if len(self.tasks) == 1 else f"[{ranks}]"
        large = "" if self.source else f", too large to show here: {self.place}"
        return f"{name} · figure {self.number}{large}"


def last_figures(paths: RunPaths) -> list[Figure]:
    """Return the last figures of a run, oldest first: each once, however many tasks showed it.

    A file that is still being written is left out.
    """
    found: dict[str, Figure] = {}
    for path in reversed(paths.figures()):
        name = _NAME.fullmatch(path.name)
        figure = _read(path, int(name[3])) if name else None
        if name is None or figure is None:
            continue
        if figure.key not in found and len(found) == FIGURES_SHOWN_LIMIT:
            break
        # It stands where it was first shown: which task is ahead depends on the machines.
        found[figure.key] = figure = found.pop(figure.key, figure)
        task = f"{name[1]}:{name[2]}"
        if task not in figure.tasks:
            figure.tasks.append(task)
    return [*reversed(found.values())]


def _read(path: Path, number: int) -> Figure | None:
    """Read a figure; None if it is no whole picture. A program may write what it likes there."""
    size = path.stat().st_size
    if size > FIGURE_BYTES:
        return Figure(f"{path.name} {size}", number, "", inside(str(path)))
    data = path.read_bytes()
    if not (data.startswith(_BEGIN) and data.endswith(_END)):
        return None
    source = f"data:image/png;base64,{base64.b64encode(data).decode()}"
    return Figure(hashlib.sha256(data).hexdigest(), number, source, inside(str(path)))


def pictures(figures: Sequence[Figure]) -> str:
    """Return figures as HTML for a saved notebook."""
    return "".join(map(_picture, figures))


def _picture(figure: Figure) -> str:
    words = html.escape(figure.caption)
    image = f'<img alt="{words}" src="{figure.source}" style="max-width:100%"><br>'
    return f"<div>{image if figure.source else ''}{words}</div>"
