"""A live cell: what happens to it, what its tasks print, and how that is shown as it runs.

Ctrl-C loses none of it. Lines are shown, but no flood of them, with questions and exceptions.
"""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter, deque
from contextlib import suppress
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mwmagic.errors import BadArguments, NoRun, RunActive, SupervisorError
from mwmagic.logs import Guard
from mwmagic.logs.lines import Follower, Mark
from mwmagic.logs.terminal import clipped, plain
from mwmagic.model.live import Answer, CellNews
from mwmagic.model.status import Question
from mwmagic.words.live import (
    debugged_words,
    freed_words,
    raised_words,
    ranks_words,
    recovered_words,
    skipped_words,
    stopped_words,
    stuck_words,
    waits_words,
    widget_words,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from types import FrameType

    from mwmagic.client.connection import Conversation
    from mwmagic.model.live import Raised

    from .session import Live

__all__ = [
    "LISTEN_SECONDS",
    "CellOutput",
    "DeferredInterrupt",
    "Flood",
    "InputPrompts",
    "LiveCell",
    "Sink",
]

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


@dataclass(eq=False, slots=True)
class _Line:
    """A line, the tasks that have printed it, and its place among the others."""

    key: tuple[str, int]
    since: float
    place: tuple[int, ...]
    tasks: list[str]


class LineMerger:
    """Gives out each line once with all the tasks that print it, in the order of first lines.

    Lines are the same only if every character is. The same line of a task that prints it twice is
    two lines. The lines of each task stay in its own order: those that it alone has printed move
    before a line that it then shares, and it shares none that stands before one it shares already.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._said: dict[str, Counter[str]] = {}
        self._waiting: dict[tuple[str, int], _Line] = {}
        self._order: list[tuple[tuple[int, ...], _Line]] = []
        self._shared: dict[str, tuple[int, ...]] = {}  # the place of each task's last shared line
        self._alone: dict[str, deque[_Line]] = {}  # and what it printed since
        self._number = count()

    def add(self, task: str, text: str, time: float) -> None:
        """Take a line of a task, at a time in seconds."""
        counts = self._said.setdefault(task, Counter())
        counts[text] += 1
        key = (text, counts[text])
        line = self._waiting.get(key)
        if line is None:
            line = self._waiting[key] = self._new(key, task, time)
        elif line.place > self._shared.get(task, ()):
            self._share(line, task)
        else:
            self._new(key, task, time)

    def _new(self, key: tuple[str, int], task: str, time: float) -> _Line:
        """Put a line of a task behind all others."""
        line = _Line(key, time, (next(self._number),), [task])
        heappush(self._order, (line.place, line))
        self._alone.setdefault(task, deque()).append(line)
        return line

    def _share(self, line: _Line, task: str) -> None:
        """Add a task to a line, behind what it alone has printed before."""
        first = line.tasks[0]
        if line.place > self._shared.get(first, ()):
            self._shared[first] = line.place
            alone = self._alone[first]
            while alone.popleft() is not line:
                pass
        line.tasks.append(task)
        self._shared[task] = line.place
        *group, last = line.place
        for own in self._alone.get(task, ()):
            if own.place > line.place:
                own.place = (*group, last - 1, next(self._number))
                own.since = line.since
                heappush(self._order, (own.place, own))
        self._alone[task] = deque()

    def due(self, time: float | None = None) -> list[tuple[tuple[str, ...], str]]:
        """Return the lines that wait for no other task, up to the first that does."""
        found = []
        while self._order:
            place, line = self._order[0]
            if place == line.place:  # else it was moved before another
                late = time is None or time - line.since >= HELD_SECONDS
                if not late and len(line.tasks) < self._size:
                    break
                if self._waiting.get(line.key) is line:
                    del self._waiting[line.key]
                alone = self._alone[line.tasks[0]]
                if alone and alone[0] is line:
                    alone.popleft()
                found.append((tuple(line.tasks), line.key[0]))
            heappop(self._order)
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


_SILENT = (CellNews.BEGUN, CellNews.ANSWER, CellNews.DONE)
"""The news after which no log is read, as that takes time: the first two say nothing of the output,
and after the last one all logs are read anyway."""

WIDGET = "application/vnd.jupyter.widget-view+json"
"""The MIME type of a widget, which says only where in its kernel the widget's model is."""

NOTICE_SECONDS = 0.25
"""How long an exception waits for the same of other tasks before it is shown."""

CONSEQUENCES: dict[CellNews | None, Callable[[Mapping[str, Any]], str]] = {
    CellNews.WAITS: waits_words,
    CellNews.STOPPED: stopped_words,
    CellNews.FREED: freed_words,
    CellNews.RECOVERED: recovered_words,
}
"""What is reported of the others after an exception, and so after that."""

BURST_CHARACTERS = 200_000
"""How much is shown at once; JupyterLab takes a million characters in a second."""

STEADY_CHARACTERS = 10_000
"""How much more each second."""

EXTRA_LINE_CHARACTERS = 50
"""How many characters a line counts besides its own."""

LONGEST_CHARACTERS = 20_000
"""How much of a line is shown."""

LAST_LINES = 100
"""How many of the last lines are shown in any case."""

DEBUGGED_SECONDS = 1.0
"""How long the others wait after a debugger's command for its next prompt: one task at a time."""


class InputPrompts:
    """Passes on what tasks ask, and what is typed."""

    def __init__(
        self,
        say: Callable[[str], None],
        reply: Callable[[str, str | None], None],
        printed: Callable[[str], Iterable[str]] = lambda _: (),
    ) -> None:
        self._say = say
        self._reply = reply
        self._printed = printed
        self._order = _PromptOrder()

    def ask(self, asks: Mapping[str, Question]) -> str | None:
        """Ask what the next task asks, and return that task; None if none is due yet."""
        task = self._order.next(asks)
        if task is None:
            return None
        others = self._order.waiting(task, asks)
        if others:
            self._say(f"─ {debugged_words(others, task)}")
        if asks[task].debugger:
            for line in self._printed(task):
                self._say(f"[{ranks_words([task])}] {line}")
        try:
            text: str | None = input(f"[{ranks_words([task])}] {plain(asks[task].prompt)}")
        except EOFError:  # Ctrl-D
            text = None
        try:
            self._pass_on(task, text)
        except BadArguments as error:  # it is too long, and so it is asked again
            self._say(f"─ {error}")
            return None
        self._order.answered(task, asks[task])
        return task

    def refuse(self, asks: Mapping[str, Question]) -> None:
        """Pass on to all tasks that ask that no answer will come."""
        for task in asks:
            self._pass_on(task, None)

    def _pass_on(self, task: str, text: str | None) -> None:
        """Reply to a task, which may have ended since it asked; the wait then says why."""
        with suppress(NoRun, SupervisorError):
            self._reply(task, text)


class _PromptOrder:
    """Chooses the task to answer: the one in the debugger until it continues, then the next."""

    def __init__(self) -> None:
        self._last: str | None = None
        self._until = 0.0
        self._told: set[str] = set()

    def next(self, asks: Mapping[str, Question]) -> str | None:
        """Return the task whose question is answered next; None if that is not known yet."""
        if self._last in asks:
            return self._last
        if self._last is not None and time.monotonic() < self._until:
            return None
        self._told.clear()
        return next(iter(asks), None)

    def waiting(self, task: str, asks: Mapping[str, Question]) -> list[str]:
        """Return the tasks that wait for one in the debugger, and have not been named yet."""
        others = [one for one in asks if one != task and one not in self._told]
        self._told.update(others)
        return others if asks[task].debugger else []

    def answered(self, task: str, question: Question) -> None:
        """Note that a question was answered."""
        self._last = task if question.debugger else None
        self._until = time.monotonic() + DEBUGGED_SECONDS


@dataclass(frozen=True)
class Sink:
    """Where a cell's output goes: `say` prints a line, and `show` displays a value by MIME type."""

    say: Callable[[str], None]
    show: Callable[[Mapping[str, Any]], None]


class Notices:
    """The exceptions that are shown while other tasks still run; those of the end are not."""

    def __init__(self) -> None:
        self._waiting: dict[Raised, tuple[float, list[str]]] = {}

    def hear(self, answer: Answer, now: float) -> None:
        """Take a task's answer."""
        if answer.raised is not None and not answer.freed:
            self._waiting.setdefault(answer.raised, (now, []))[1].append(answer.task)

    def due(self, now: float | None) -> list[tuple[Raised, list[str]]]:
        """Return what is to be shown now, with the tasks that raised it; without a time, all."""
        due = [
            (raised, tasks)
            for raised, (since, tasks) in self._waiting.items()
            if now is None or now - since >= NOTICE_SECONDS
        ]
        for raised, _ in due:
            del self._waiting[raised]
        return due


class CellOutput:
    """Shows one cell: what its tasks print, raise, ask and return."""

    def __init__(self, live: Live, cell: LiveCell, name: str, sink: Sink) -> None:
        self._live = live
        self._cell = cell
        self._name = name
        self._sink = sink
        self._size = len(live.cluster.tasks)
        self._notices = Notices()
        self._asks: dict[str, Question] = {}
        self._flood = Flood(sink.say)
        self._prompts = InputPrompts(sink.say, live.reply)
        self._printed = time.monotonic()

    def follow(self) -> None:
        """Show what the tasks print and what happens to the cell, until it is over."""
        for news in self._live.follow(self._cell):
            what, said = news or (None, {})
            if what not in _SILENT or time.monotonic() > self._printed + LISTEN_SECONDS:
                self.lines()
                self._printed = time.monotonic()
            if what is CellNews.SHOW and isinstance(said["value"], dict):
                self._head([said["task"]], several=self._size > 1)
                self._show(said["value"])
            if what is CellNews.ASK:
                question = Question(said["prompt"], debugger=said["debugger"])
                self._asks[said["task"]] = question
            if what is CellNews.ANSWER:
                self._asks.pop(said["task"], None)
                self._notices.hear(self._cell.answers[said["task"]], time.monotonic())
            now = None if what in CONSEQUENCES else time.monotonic()
            for raised, tasks in self._notices.due(now):
                self._sink.say(f"─ {raised_words(tasks, raised, self._name)}")
            if what in CONSEQUENCES:
                self._sink.say(f"─ {CONSEQUENCES[what](said)}")
            if self._asks and not self._cell.over:
                self.lines(every=True)
                self._asks.pop(self._prompts.ask(self._asks) or "", None)
        self.lines()
        self._traces()

    def interrupted(self) -> None:
        """Show what was left to tell when the cell was interrupted."""
        self.lines()
        self._flood.release()
        if self._cell.recovered is not None:
            self._sink.say(f"─ {recovered_words(self._cell.recovered)}")

    def lines(self, *, every: bool = False) -> None:
        """Show the lines that are due, or every one."""
        self._flood.pass_time(time.monotonic())
        for tasks, text in self._cell.lines(every=every):
            self._flood.feed(text if self._size == 1 else f"[{ranks_words(tasks)}] {text}")
        if every or self._cell.over:
            self._flood.release()

    def _head(self, tasks: Sequence[str], *, several: bool) -> None:
        """Name the tasks that what follows comes from, where it may come from others."""
        if several:
            self._sink.say(f"[{ranks_words(tasks)}]")

    def _traces(self) -> None:
        """Show each traceback once, with the tasks that have it."""
        groups: dict[str, list[str]] = {}
        for task, one in self._cell.ranked().items():
            if one.raised is not None and not one.raised.left and not one.freed:
                groups.setdefault(one.raised.trace, []).append(task)
        for trace, tasks in groups.items():
            self._sink.say(f"[{ranks_words(tasks)}] {trace.rstrip()}")

    def values(self) -> None:
        """Display the values of the last expression, equal ones once."""
        groups: list[tuple[Mapping[str, Any], list[str]]] = []
        for task, answer in self._cell.ranked().items():
            same = next((tasks for value, tasks in groups if value == answer.value), None)
            if same is not None:
                same.append(task)
            else:
                groups.append((answer.value, [task]))
        for value, tasks in groups:
            if value:
                self._head(tasks, several=len(groups) > 1)
                self._show(value)

    def _show(self, value: Mapping[str, Any]) -> None:
        """Display a value; a widget would load forever, as its model is not in this kernel."""
        if WIDGET in value:
            text = widget_words(str(value.get("text/plain", "")))
            value = {**value, "text/plain": text}
            del value[WIDGET]
        self._sink.show(value)


class Flood:
    """Shows lines as they come; of too many the first and the last, with how many are left out."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._room = float(BURST_CHARACTERS)
        self._then: float | None = None
        self._held: deque[str] = deque()
        self._skipped = 0

    def pass_time(self, now: float) -> None:
        """Make room as time passes, and show what was held back once there is enough."""
        passed = 0.0 if self._then is None else now - self._then
        self._room = min(self._room + STEADY_CHARACTERS * passed, BURST_CHARACTERS)
        self._then = now
        if self._held and self._room > BURST_CHARACTERS / 2:
            self.release()

    def feed(self, text: str) -> None:
        """Show a line, or hold it back."""
        short = clipped(text, LONGEST_CHARACTERS)
        line = text if short == text else f"{short} …"
        if self._held or self._room < len(line) + EXTRA_LINE_CHARACTERS:
            self._held.append(line)
            if len(self._held) > LAST_LINES:
                self._held.popleft()
                self._skipped += 1
        else:
            self._show(line)

    def release(self) -> None:
        """Show the last lines that were held back."""
        if self._skipped:
            self._say(skipped_words(self._skipped))
        held = list(self._held)
        self._held.clear()
        self._skipped = 0
        for line in held:
            self._show(line)

    def _show(self, line: str) -> None:
        self._room -= len(line) + EXTRA_LINE_CHARACTERS
        self._say(line)
