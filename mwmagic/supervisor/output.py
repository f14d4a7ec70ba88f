"""What one process prints, as its supervisor reads it."""

from __future__ import annotations

import codecs
from collections import deque
from typing import TYPE_CHECKING

from mwmagic.agent.wire import as_bytes, as_text
from mwmagic.diagnosis import is_telling
from mwmagic.logs.noise import NATIVE
from mwmagic.logs.phases import Phases
from mwmagic.logs.progress import Update
from mwmagic.logs.terminal import Terminal

from .reports import History
from .training import Training

if TYPE_CHECKING:
    from mwmagic.logs.guard import Guard
    from mwmagic.logs.phases import Phase

    from .reports import Report

__all__ = ["Output"]

TAIL_LINES = 200
"""Lines of a log's end that are kept for the diagnosis."""

TELLING_LINES = 50
"""How many of the lines that tell something are kept, however much is printed after them."""


class Output:
    """Reads a process's output once, for its end, its start-up and its progress.

    Attributes
    ----------
    training : Training
        How far its training has come.
    informed : bool
        Whether there was a notice that only the most verbose level shows.
    at_work : bool
        Whether the framework itself printed something: its native code or Keras's training.
    """

    def __init__(self, guard: Guard) -> None:
        self.training = Training(guard)
        self.informed = False
        self.at_work = False
        self._guard = guard
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._terminal = Terminal()
        self._phases = Phases()
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._telling: dict[str, None] = {}
        self._older: int | None = None  # how many bytes come that a cell did not print

    @property
    def tail(self) -> str:
        """The last lines, as a terminal shows them."""
        return "\n".join(self._tail)

    @property
    def telling(self) -> str:
        """The first lines that tell something, whatever their age, and the last lines."""
        return "\n".join([*self._telling, *self._tail])

    @property
    def phase(self) -> Phase:
        """Where the process is in its start-up."""
        return self._phases.phase

    def begin_cell(self, older: int) -> None:
        """Keep only lines of a cell, whose output begins after some more bytes."""
        self._older = max(0, older)
        self.feed("")

    def feed(self, data: str) -> tuple[int, list[Update]]:
        """Take the next output, in which an agent escaped the bytes that are not UTF-8."""
        if self._older is None:
            return self._fed(data)
        raw, older = as_bytes(data), self._older
        if len(raw) < older:
            self._older -= len(raw)
            return self._fed(data)
        size, before = self._fed(as_text(raw[:older]))
        self._older, self._terminal = None, Terminal()
        self._tail.clear()
        self._telling.clear()
        rest, updates = self._fed(as_text(raw[older:]))
        return size + rest, before + updates

    def _fed(self, data: str) -> tuple[int, list[Update]]:
        size, text = self._decoded(data)
        self._show(text)
        updates = self.training.printed(text)
        if updates:
            self._phases.train()
        return size, updates

    def said(self, data: str) -> Report | None:
        """Read a packet of its private line; return None if it is not a report."""
        report = self._guard.call("report", None, self.training.said, data)
        if isinstance(report, Update | History):
            self._phases.train()
            self.at_work |= isinstance(report, History) or report.kind != "report"
        return report

    def close(self) -> None:
        """Take unfinished text as the last line."""
        self._tail.extend(self._guard.call("terminal", [], self._terminal.close))

    def _decoded(self, data: str) -> tuple[int, str]:
        """Return how many bytes were escaped in a text, and what they say."""
        if data.isascii() and not self._decoder.getstate()[0]:
            return len(data), data
        raw = as_bytes(data)
        return len(raw), self._decoder.decode(raw)

    def _show(self, text: str) -> None:
        lines = self._guard.call("terminal", None, self._terminal.write, text)
        if lines is None:
            self._terminal = Terminal()
            return
        self._tail.extend(lines)
        for line in lines:
            self._guard.call("start-up", None, self._start_up, line)
            self._guard.call("native notices", None, self._keep, line)

    def _start_up(self, line: str) -> None:
        self._phases.feed(line)
        notice = None if self.informed else NATIVE.match(line)
        if notice is not None:
            self.at_work = True
            self.informed = "I" in notice.group(1, 2)

    def _keep(self, line: str) -> None:
        if len(self._telling) < TELLING_LINES and is_telling(line):
            self._telling[line] = None
