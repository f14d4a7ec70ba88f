"""One way to show a log that may grow: what of it, and how much."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from mwmagic.logs.follower import Follower
from mwmagic.logs.lines import LINE_CHARACTERS, Fold, Hidden
from mwmagic.logs.terminal import plain
from mwmagic.model.text import encodable
from mwmagic.words.log import earlier_words, hidden_words

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from mwmagic.logs.guard import Guard
    from mwmagic.logs.lines import LogLine

__all__ = ["TAIL_BYTES", "TAIL_CHARACTERS", "LogView"]

TAIL_BYTES = (2**18, 2**21, 2**24)
"""How far before the end of a log to look for its last lines, tried in this order."""

TAIL_CHARACTERS = 2**20
"""How long the last lines may be in total, of all logs that are shown together."""


class LogView:
    """One way to show a log."""

    def __init__(
        self,
        path: Path,
        guard: Guard,
        *,
        raw: bool,
        ansi: bool,
        wanted: re.Pattern[str] | None,
        cut: bool,
    ) -> None:
        self._path = path
        self._follower = Follower(path, guard, ansi=ansi, raw=raw)
        self._wanted = wanted
        self._cut = cut
        self._fold = Fold()

    def go_on_in(self, rest: Path | None) -> None:
        """Read what the log lacks at its end in another file, if there is one."""
        self._follower.sequel = rest or self._follower.sequel

    def new(self) -> Iterator[str]:
        """Yield the lines that have ended since the last call."""
        return self._shown(self._ended())

    def close(self) -> Iterator[str]:
        """Yield what has not ended."""
        return self._shown(self._left())

    def last(self, count: int, limit: int, *, growing: bool = False) -> list[str]:
        """Return the last lines so far, preceded by a note on how many are left out."""
        kept, before = self._found(count, growing=growing)
        shown = deque(kept)
        length = sum(map(len, shown))
        while len(shown) > 1 and length > limit:
            length -= len(shown.popleft())
        if before is not None:
            before += len(kept) - len(shown)
        return [*([] if before == 0 else [earlier_words(before)]), *shown]

    def _found(self, count: int, *, growing: bool) -> tuple[Sequence[str], int | None]:
        """Return the last lines, and how many precede them, if that is known."""
        self._follower.begin(0)
        size = self._follower.behind
        kept, number, start = deque[str](), 0, 0
        for span in TAIL_BYTES if self._wanted is None else (size,):
            start = max(0, size - span)
            kept, number = _last(map(self._short, self._from(start, growing=growing)), count)
            if start == 0 or number >= count:
                break
        return kept, number - len(kept) if start == 0 else None

    def _from(self, start: int, *, growing: bool) -> Iterator[str]:
        """Yield all lines from an offset in the log on, however long they are."""
        self._follower.begin(start)
        self._fold = Fold()
        yield from self._ended()
        if not growing:
            yield from self._left()

    def _ended(self) -> Iterator[str]:
        while self._follower.behind > 0:
            yield from self._texts(self._follower.read())

    def _left(self) -> Iterator[str]:
        yield from self._texts(self._follower.close())
        yield from self._chosen(self._fold.close())

    def _texts(self, lines: Sequence[LogLine]) -> Iterator[str]:
        return self._chosen(self._fold.feed(lines))

    def _chosen(self, texts: Iterable[str | Hidden]) -> Iterator[str]:
        for text in texts:
            if isinstance(text, Hidden):
                if self._wanted is None:
                    yield hidden_words(text.count)
            elif self._wanted is None or self._wanted.search(plain(text)):
                yield text

    def _shown(self, lines: Iterator[str]) -> Iterator[str]:
        return map(self._short, lines) if self._cut else lines

    def _short(self, line: str) -> str:
        """Return a line as it is shown: a long one is cut off and names the file."""
        if len(line) <= LINE_CHARACTERS:
            return line
        path = encodable(str(self._path))
        return f"{line[:LINE_CHARACTERS]} … ({len(line):,} characters; see {path})"


def _last(lines: Iterable[str], count: int) -> tuple[deque[str], int]:
    """Return the last `count` lines, and the number of all lines."""
    kept: deque[str] = deque(maxlen=count)
    number = 0
    for line in lines:
        kept.append(line)
        number += 1
    return kept, number
