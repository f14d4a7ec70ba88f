"""A live cell: what happens to it, what its tasks print, and Ctrl-C that loses none of it."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mwmagic.errors import RunActive
from mwmagic.logs import Guard
from mwmagic.logs.lines import Follower, Mark
from mwmagic.model.live import Answer, CellNews
from mwmagic.words.live import stuck_words

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import FrameType

    from mwmagic.client.connection import Conversation

__all__ = ["LISTEN_SECONDS", "DeferredInterrupt", "LiveCell"]

LISTEN_SECONDS = 0.05
"""The pause between two looks at the logs."""

HELD_SECONDS = 0.25
"""How long a line waits for the other tasks to print it as well."""


class LiveCell:
    """A cell that runs on some tasks, and the answers that have come, by task.

    `number` is that in its session, and 0 until it is known. `why` says why it is over, as
    `mwmagic.cells.events.End` has it; `freed` and `recovered` say which tasks were freed from a
    collective and what became of their state, as in `CellNews`.
    """

    def __init__(self, conversation: Conversation, size: int) -> None:
        self.number = 0
        self.answers: dict[str, Answer] = {}
        self.over = False
        self.why = ""
        self.unanswered: tuple[str, ...] = ()
        self.freed: Mapping[str, Any] | None = None
        self.recovered: Mapping[str, Any] | None = None
        self._conversation = conversation
        self._merger = LineMerger(size)
        self._places: Mapping[str, Mapping[str, Any]] = {}
        self._logs: dict[str, Follower] = {}

    def news(self, seconds: float | None = None) -> tuple[CellNews, Mapping[str, Any]] | None:
        """Return what happens next; None if nothing does within some seconds.

        It raises BadArguments if the cell is too long, the error with which the supervisor refuses
        it, or SupervisorLost.
        """
        with DeferredInterrupt() as interrupt:
            with interrupt.gap:
                came = self._conversation.wait(seconds)
            if not came:
                return None
            what, said = self._conversation.next(0.0)
            kind = CellNews(what)
            self._on_news(kind, said)
        return kind, said

    def _on_news(self, what: CellNews, said: Mapping[str, Any]) -> None:
        if what is CellNews.QUEUED:
            self.number = said["cell"]
        elif what is CellNews.BEGUN:
            self.number = said["cell"]
            self._places = said["logs"]
        elif what is CellNews.ANSWER:
            answer = Answer.read(said)
            self.answers[answer.task] = answer
        elif what is CellNews.FREED:
            self.freed = said
        elif what is CellNews.RECOVERED:
            self.recovered = said
        elif what is CellNews.REFUSED:
            raise RunActive(stuck_words(said["stuck"]))
        elif what is CellNews.DONE:
            self.over = True
            self.why = said["why"]
            self.unanswered = tuple(said["unanswered"])

    @property
    def tasks(self) -> tuple[str, ...]:
        """Its tasks, once it has begun."""
        return tuple(self._places)

    def ranked(self) -> dict[str, Answer]:
        """Return the answers in the order of the tasks' ranks."""
        return {task: self.answers[task] for task in self._places if task in self.answers}

    def lines(self, *, every: bool = False) -> list[tuple[tuple[str, ...], str]]:
        """Return the lines that are due, or every one, each with the tasks that printed it."""
        for task, log in self._followed().items():
            lines = log.rest() + (log.close() if self.over else [])
            for line in lines:
                if line.mark != Mark.NOISE:
                    self._merger.add(task, line.text, time.monotonic())
        return self._merger.due(None if self.over or every else time.monotonic())

    def _followed(self) -> dict[str, Follower]:
        """Return what reads the logs that have output of the cell, from where it begins."""
        for task in self._places.keys() - self._logs.keys():
            where, answer = self._places[task], self.answers.get(task)
            if answer is not None and answer.end == where["start"]:
                continue
            log = self._logs[task] = Follower(Path(where["log"]), Guard(lambda _: None))
            log.begin(where["start"], exact=True)
        return {task: self._logs[task] for task in self._places if task in self._logs}


@dataclass
class _Line:
    """A line, and the tasks that have printed it."""

    text: str
    since: float
    tasks: list[str] = field(default_factory=list)


class LineMerger:
    """Gives out each line once with all the tasks that print it, in the order of first lines.

    Lines are the same only if every character is. The same line of a task that prints it twice is
    two lines.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._said: dict[str, Counter[str]] = {}
        self._waiting: dict[tuple[str, int], _Line] = {}

    def add(self, task: str, text: str, time: float) -> None:
        """Take a line of a task, at a time in seconds."""
        counts = self._said.setdefault(task, Counter())
        counts[text] += 1
        key = (text, counts[text])
        self._waiting.setdefault(key, _Line(text, time)).tasks.append(task)

    def due(self, time: float | None = None) -> list[tuple[tuple[str, ...], str]]:
        """Return the lines that wait for no other task, up to the first that does."""
        found = []
        for key, line in list(self._waiting.items()):
            late = time is None or time - line.since >= HELD_SECONDS
            if not late and len(line.tasks) < self._size:
                break
            del self._waiting[key]
            found.append((tuple(line.tasks), line.text))
        return found


class DeferredInterrupt:
    """Keeps SIGINT's handler from being called in a block, but for its `gap`s.

    If the signal came in the meantime, the handler is called in the next gap, or after the
    block. In other threads than the main one, where Python calls no handlers, it does nothing.
    """

    def __init__(self) -> None:
        self.gap = _Gap(self)
        self.open = False
        self._usual: Callable[[int, FrameType | None], Any] | None = None
        self._late = False

    def __enter__(self) -> DeferredInterrupt:  # noqa: PYI034 - Self needs Python 3.11
        usual = signal.getsignal(signal.SIGINT)
        if callable(usual) and threading.current_thread() is threading.main_thread():
            self._usual = usual
            signal.signal(signal.SIGINT, self._came)
        return self

    def __exit__(self, *_: object) -> None:
        if self._usual is not None:
            signal.signal(signal.SIGINT, self._usual)
            self.settle()

    def _came(self, number: int, frame: FrameType | None) -> None:
        if self.open:
            self._call(number, frame)
        else:
            self._late = True

    def settle(self) -> None:
        """Handle a signal that has come in the meantime."""
        if self._late:
            self._late = False
            self._call(signal.SIGINT, None)

    def _call(self, number: int, frame: FrameType | None) -> None:
        """Call the handler; where it raises, the gap is over."""
        was, self.open = self.open, False
        if self._usual is not None:
            self._usual(number, frame)
        self.open = was


class _Gap:
    """A block within that of a deferred interrupt, in which the handler is called."""

    def __init__(self, interrupt: DeferredInterrupt) -> None:
        self._interrupt = interrupt

    def __enter__(self) -> None:
        self._interrupt.open = True
        self._interrupt.settle()

    def __exit__(self, *_: object) -> None:
        self._interrupt.open = False
