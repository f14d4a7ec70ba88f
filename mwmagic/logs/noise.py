"""Separates the notices of a framework from what a user needs to read.

Training with two workers prints some forty notices before the first line of the
user's code, and a dataset that cannot be sharded dumps its graph. Errors are never
hidden, nor is anything that the user's code prints.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from mwmagic.frameworks import alternatives, collected, either, frameworks
from mwmagic.model.live import FREED

from .terminal import plain

if TYPE_CHECKING:
    from collections.abc import Mapping

NATIVE = re.compile(
    r"(?:([IWEF])\d{4} \d\d:\d\d:[\d.]+ +\d+ |\d{4}-\d\d-\d\d \d\d:\d\d:[\d.]+: ([IWEF]) )"
    r"(?:[\w./-]{1,200}/)?(\w{1,80}\.(?:cc|h|cu|cpp)):\d+\] ?"
)
"""The start of a line of absl's C++ logging, now, and in TensorFlow until 2.20.

Python's absl logging looks the same but names a ``.py`` file: that is the user's output.
"""

_NAME = r"(?:\w+|\[[\w./]+\])"
_OPEN = re.compile(rf"( *){_NAME} \{{$")
_FIELD = re.compile(rf'( *){_NAME}: (?:"(?:[^"\\]|\\.)*"|-?[\d.]+(?:e[+-]?\d+)?|[A-Za-z]\w*)$')
_CLOSE = re.compile(r"( *)\}$")
_NODE = re.compile(r'(?:name|op|input|device): "(?:[^"\\]|\\.)*"$')
_NUMBERS = r"\s*(?:array|dtype)[(=]|[\s\[\]().,]*-?(?:\d|nan|inf|True|False|b'|\.\.\.|$)"
"""A line of an array, as NumPy prints it."""

_DUMP_END_LINES = 3  # how many other lines in a row end a dump


@dataclass(frozen=True)
class _Signs:
    """The patterns of the notices of all frameworks.

    `head` and `dump` find the lines that can begin a notice; most lines need no other test.
    """

    head: re.Pattern[str]
    dump: re.Pattern[str]
    notice: re.Pattern[str]
    harmless: Mapping[str, re.Pattern[str]]
    failing: re.Pattern[str]
    more: re.Pattern[str]
    graph: re.Pattern[str]
    batch: re.Pattern[str]
    array: re.Pattern[str]


@cache
def _signs() -> _Signs:
    notices = collected(lambda one: one.notices)
    dumps = collected(lambda one: (*one.graph_dumps, *one.batch_dumps))
    heads = (r"[IWEF]\d{4} ", r"\d{4}-\d\d-\d\d ", r"\x1b")
    return _Signs(
        head=re.compile(alternatives((*heads, *notices))),
        dump=re.compile(alternatives(dumps)),
        notice=re.compile(alternatives(notices)),
        harmless=_harmless_files(),
        failing=either(lambda one: one.native_failures),
        more=either(lambda one: one.continuations),
        graph=either(lambda one: one.graph_dumps),
        batch=either(lambda one: one.batch_dumps),
        array=re.compile(alternatives([*collected(lambda one: one.batch_lines), _NUMBERS])),
    )


def _harmless_files() -> dict[str, re.Pattern[str]]:
    """Return the harmless messages above the info level, by source file."""
    texts: dict[str, list[str]] = {}
    for one in frameworks():
        for file, text in one.native_notices.items():
            texts.setdefault(file, []).append(text)
    return {file: re.compile(alternatives(found)) for file, found in texts.items()}


class Noise:
    """Classifies the lines of one log in order; a dump spans many of them."""

    def __init__(self) -> None:
        self._signs = _signs()
        self._after_notice = False
        self._dump: _Dump | None = None

    def hides(self, line: str) -> bool:
        """Return whether `line`, the next one of the log, means nothing to a user."""
        within = self._dump or self._after_notice
        if within or self._signs.head.match(line) or self._signs.dump.search(line):
            return self._judge(plain(line))
        return False

    def _judge(self, line: str) -> bool:
        if self._dump is not None and self._dump.over:
            self._dump = None
        native = NATIVE.match(line)
        if native or self._signs.notice.match(line):
            self._after_notice = native is None or self._harmless(native, line)
            self._dump = self._dump_after(line)
            return self._after_notice
        if self._dump is not None and self._dump.owns(line):
            return True
        if self._after_notice and _OPEN.match(line):
            self._dump = _Graph()
            return self._dump.owns(line)
        self._after_notice = self._after_notice and self._signs.more.match(line) is not None
        self._dump = self._dump_after(line) or self._dump
        return self._after_notice

    def _harmless(self, native: re.Match[str], line: str) -> bool:
        if FREED in line:  # what mwmagic itself has ended, and says so
            return True
        known = self._signs.harmless.get(native[3])
        if known is not None and known.match(line, native.end()):
            return True
        return (native[1] or native[2]) == "I" and not self._signs.failing.search(
            line, native.end()
        )

    def _dump_after(self, line: str) -> _Dump | None:
        """Return the dump that follows `line`, if any."""
        if self._signs.graph.search(line):
            return _Graph()
        return _Batch(self._signs.array) if self._signs.batch.search(line) else None


class _Dump:
    """Lines of a message that only repeat data, up to several other lines in a row."""

    def __init__(self) -> None:
        self._foreign = 0
        self._ended = False

    @property
    def over(self) -> bool:
        """Whether the next line cannot belong to the dump any more."""
        return self._ended or self._foreign >= _DUMP_END_LINES

    def owns(self, line: str) -> bool:
        """Return whether `line` belongs to the dump."""
        owned = self._fits(line)
        self._foreign = 0 if owned else self._foreign + 1
        return owned

    def _fits(self, line: str) -> bool:
        raise NotImplementedError


class _Graph(_Dump):
    """A protocol buffer in text form, as auto-sharding of a dataset prints it.

    A line belongs to it only if it is indented by two spaces per level.
    """

    def __init__(self) -> None:
        super().__init__()
        self._depth = 0

    def _fits(self, line: str) -> bool:
        indent = "  " * self._depth
        if (match := _OPEN.match(line)) and match[1] == indent:
            self._depth += 1
            return True
        if (match := _CLOSE.match(line)) and self._depth and match[1] == indent[2:]:
            self._depth -= 1
            return True
        if self._depth == 0:
            self._ended = not _NODE.match(line)
            return not self._ended or not line
        match = _FIELD.match(line)
        return match is not None and match[1] == indent


class _Batch(_Dump):
    """The arrays of a batch inside an error message, up to its closing brace."""

    def __init__(self, array: re.Pattern[str]) -> None:
        super().__init__()
        self._array = array

    def _fits(self, line: str) -> bool:
        self._ended = line.startswith("})")
        return not self._ended and bool(self._array.match(line))
