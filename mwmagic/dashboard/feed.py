"""What is sent to the pages that show a run: its state, log lines and points, in small packets.

Each page gets what it has not received yet, and no more than it takes.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from mwmagic.experiments.series import Series
from mwmagic.logs import Guard
from mwmagic.logs.lines import Follower, Lag, LogLine, Mark, shortened
from mwmagic.logs.terminal import clipped
from mwmagic.model.status import TaskState
from mwmagic.model.values import encodable, sendable
from mwmagic.record import RunPaths
from mwmagic.words.run import axis, fault_words, left_out_words

from .journal import Journal, Whole, last_figures
from .rows import EqualMetrics, Load, folded, grouped, header, host_row, row

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mwmagic.experiments.series import Point
    from mwmagic.model.status import RunStatus

    from .journal import Figure
    from .rows import HostGroup, View

__all__ = ["NOTHING_OPEN", "Cursor", "Feed", "Opened", "Pages"]


PACKET_CHARACTERS = 24_000
"""Maximum size of a packet."""

WINDOW_CHARACTERS = 6 * PACKET_CHARACTERS
"""How much may be in flight to pages that have not answered yet: the backpressure window."""

LEAST_CHARACTERS = 4000
"""Minimum room for a packet, and all that a page gets while it does not answer."""

QUESTION_SECONDS = 1.0
"""Time between two questions while little is being sent."""

SILENCE_SECONDS = 1.0
"""How long a question waits for the slowest page."""

UNANSWERED_LIMIT = 900
"""How many questions a page may leave unanswered before it counts as closed.

While a cell blocks, kernels without subshells receive nothing from the pages,
which still receive everything.
"""


class Cursor(NamedTuple):
    """The numbers of the first text, point and state that a page lacks."""

    text: int = 0
    point: int = 0
    state: int = 0


class Opened(NamedTuple):
    """What a page shows of many tasks: all of some hosts', and single ones, by index."""

    hosts: frozenset[int]
    tasks: frozenset[int]


NOTHING_OPEN = Opened(frozenset(), frozenset())


@dataclass
class _Page:
    position: Cursor
    opened: Opened = NOTHING_OPEN
    waiting: bool = False
    unanswered: int = 0


class Pages:
    """The pages that have sent a message.

    Each packet goes to all of them. Some packets carry a question, which the pages
    answer; not all do, because an answer costs more than a small packet. Until every
    page has answered, or the question has timed out, a limited amount is sent.
    """

    def __init__(self) -> None:
        self._pages: dict[str, _Page] = {}
        self._question = 0
        self._asked = 0.0
        self._goal = Cursor()
        self._unanswered = 0

    def heard(
        self, name: str, position: Cursor, question: int = 0, opened: Opened = NOTHING_OPEN
    ) -> None:
        """Record the position that a page reports, and what it shows; add the page if it is new.

        A page that answers the current question has everything up to its goal, and
        what was sent since is on its way; any other message means that something was
        lost. Pages that left a question unanswered are no longer waited for: they are
        closed, or so busy that they must ask again.
        """
        page = self._pages.get(name)
        whole = all(has >= wanted for has, wanted in zip(position, self._goal, strict=True))
        if page is not None and question == self._question and whole:
            position = page.position
        answering = {other: page for other, page in self._pages.items() if not page.unanswered}
        self._pages = {**answering, name: _Page(position, opened)}

    def restart(self) -> None:
        """Start again at position 0: the pages show another run."""
        self._goal = Cursor()
        for page in self._pages.values():
            page.position = Cursor()

    def room(self, time: float) -> int:
        """Return how many characters may be sent now."""
        if not self._pages:
            return 0
        if not self._waiting:
            return PACKET_CHARACTERS
        if time - self._asked > SILENCE_SECONDS:
            return LEAST_CHARACTERS
        left = WINDOW_CHARACTERS - self._unanswered
        return min(left, PACKET_CHARACTERS) if left >= LEAST_CHARACTERS else 0

    @property
    def known(self) -> bool:
        """Whether there is a page to send anything to."""
        return bool(self._pages)

    @property
    def _waiting(self) -> bool:
        return any(page.waiting for page in self._pages.values())

    @property
    def opened(self) -> Opened:
        """What any of the pages shows."""
        opened = [NOTHING_OPEN, *(page.opened for page in self._pages.values())]
        return Opened(*(frozenset().union(*each) for each in zip(*opened, strict=True)))

    def position(self) -> Cursor:
        """Return the position of the page that is furthest behind."""
        positions = (page.position for page in self._pages.values())
        return Cursor(*map(min, zip(*positions, strict=True)))

    def _due(self, time: float) -> bool:
        """Return whether it is time for a question."""
        since = time - self._asked
        if self._waiting:
            return since > SILENCE_SECONDS
        return since > QUESTION_SECONDS or self._unanswered > WINDOW_CHARACTERS // 2

    def send(self, position: Cursor, size: int, time: float) -> int:
        """Record that a packet is sent that takes every page to `position`."""
        self._unanswered += size
        for page in self._pages.values():
            page.position = position
        if not self._due(time):
            return 0
        self._question += 1
        self._asked, self._goal, self._unanswered = time, position, size
        for name, page in list(self._pages.items()):
            page.unanswered += page.waiting
            page.waiting = True
            if page.unanswered > UNANSWERED_LIMIT:
                del self._pages[name]
        return self._question


AHEAD_BYTES = 96_000
"""Maximum read for one packet."""

TURN_BYTES = 8_000
"""How much is read at a time, until there is enough for the packet."""

LAG = Lag(2**20, left_out_words)
"""How far a reader may fall behind a log before it skips ahead: a page keeps fewer lines."""

FLOOD_BYTES = 2**18
"""How far behind the logs a page is whose tasks print more than it can show."""

PACKET_POINTS = 1000
"""Maximum in one packet."""

MOVING_SECONDS = 0.2
"""Time between two updates of the values that keep changing."""

MOVING = {"part", "progress", "metrics", "usage", "shared"}
"""The parts of a row, and of the header, that keep changing."""

SUMMARY_SECONDS = 1.0
"""Time between two updates of what is summed up for each host, unless one fails."""

URGENT = ("tone", "raised")
"""The parts of a host's summary that do not wait for it."""

Versioned = dict[str, tuple[int, Any]]
"""Values by name, each with the version of the state in which it last changed."""

DEFAULT_AXIS = "step"
"""What a chart counts while a page knows of nothing else."""

_NOTHING: tuple[object, ...] = (None, {}, [])
"""Values left out of a packet. An empty string is sent, because it clears the old one."""

LIVE_LINE_CHARACTERS = 300
"""Maximum length shown of a line that is still being written."""


class Feed:
    """One run, as it is sent to its pages."""

    def __init__(self, view: View) -> None:
        run = view.run
        self.number = run.number
        self._paths = RunPaths(Path(run.directory))
        self.series = Series(self._paths.metrics, run.tasks, usage=True)
        self.journal = Journal()
        self._guard = Guard(lambda fault: self.say(fault_words(fault)))
        self._names = list(run.tasks)
        self._followers: list[Follower | None] = [None] * len(run.tasks)
        self._state = 0
        self._stacks = (0, "")
        self._header: Versioned = {}
        self._hosts: list[Versioned] = []
        self._figures: Versioned = {}
        self._figure_files: list[tuple[Path, int, int]] = []
        self._rows: list[Versioned] = [{} for _ in run.tasks]
        self._shown: frozenset[int] = frozenset()
        self._opened = NOTHING_OPEN
        self._paced = self._summed = 0.0
        self._taken: tuple[View, tuple[bool, bool]] | None = None
        self._loads = [Load() for _ in run.tasks]
        self._shared = EqualMetrics()
        self._attempt = 1
        self._behind = 0
        self.update(view)

    # The state.

    def show(self, opened: Opened) -> None:
        """Send from now on also the rows of what the pages have opened."""
        if opened != self._opened:
            self._opened, self._taken = opened, None

    def update(self, view: View) -> None:
        """Update the state from a newer status."""
        run, now = view.run, time.monotonic()
        due = run.over or now - self._paced >= MOVING_SECONDS
        summed = run.over or now - self._summed >= SUMMARY_SECONDS
        if self._taken in ((view, (True, True)), (view, (due, summed))):
            return  # nothing is new
        self._taken = (view, (due, summed))
        self._paced = now if due else self._paced
        self._summed = now if summed else self._summed
        version, groups = self._state + 1, grouped(run)
        if summed:
            self._shared.update(run)
        self._note_header(view, groups, version, due=due)
        self._note_hosts(groups, version, due=summed)
        self._note_rows(run, groups, version, due=due)
        if summed:
            self._guard.call("figures", None, lambda: self._note_figures(version))
        self._follow(run)

    def _note_header(
        self, view: View, groups: Sequence[HostGroup], version: int, *, due: bool
    ) -> None:
        before = self._header.get("hosts")
        self._note(self._header, sendable(header(view, self._shared)), version, due=due)
        if self._header["hosts"] != before:  # the pages draw new ones
            self._hosts = [{} for _ in groups]
        if view.stacks != self._stacks[1]:
            self._stacks, self._state = (version, view.stacks), version

    def _note_hosts(self, groups: Sequence[HostGroup], version: int, *, due: bool) -> None:
        for sent, group in zip(self._hosts, groups, strict=True):
            new = sendable(host_row(group))
            urgent = any(sent.get(name, (0, None))[1] != new[name] for name in URGENT)
            if due or urgent:
                self._note(sent, new, version, due=True)

    def _note_rows(
        self, run: RunStatus, groups: Sequence[HostGroup], version: int, *, due: bool
    ) -> None:
        """Record the rows that are shown somewhere; of any other task only what the charts need."""
        self._reveal(self._indices(run, groups))
        now = time.monotonic()
        for index, task in enumerate(run.tasks.values()):
            if index in self._shown:
                self._loads[index].add(task.cpu, now)
                share = self._loads[index].share if task.state is TaskState.RUNNING else None
                shared = self._shared.names if self._header["shared"][1] else ()
                new = sendable(row(task, share, shared))
                self._note(self._rows[index], new, version, due=due)
            elif axis(task.progress) != DEFAULT_AXIS:
                self._note(self._rows[index], {"axis": axis(task.progress)}, version, due=due)

    def _note_figures(self, version: int) -> None:
        """Record the last figures: their order and captions, and each picture by itself."""
        files = [(path, path.stat()) for path in self._paths.figures()]
        known = [(path, status.st_mtime_ns, status.st_size) for path, status in files]
        if known == self._figure_files:
            return  # the pictures need not be read again
        self._figure_files, figures = known, self.figures
        new: dict[str, Any] = {figure.key: figure.source for figure in figures}
        self._figures = {key: sent for key, sent in self._figures.items() if key in new or not key}
        new[""] = [[figure.key, figure.caption] for figure in figures]
        if figures:
            self._note(self._figures, new, version, due=True)

    def _indices(self, run: RunStatus, groups: Sequence[HostGroup]) -> frozenset[int]:
        """Return the tasks whose rows are shown in a page."""
        if not (groups and folded(run)):
            return frozenset(range(len(run.tasks)))
        opened = (group.tasks for at, group in enumerate(groups) if at in self._opened.hosts)
        raised = (group.raised for group in groups)
        names = {name for tasks in (*opened, *raised) for name in tasks}
        found = frozenset(index for index, name in enumerate(run.tasks) if name in names)
        return found | self._opened.tasks

    def _reveal(self, shown: frozenset[int]) -> None:
        """Forget what was sent of the rows that appear, or are no longer kept up to date."""
        for index in shown ^ self._shown:
            if index < len(self._rows):
                self._rows[index] = {}
        self._shown = shown

    def _note(self, sent: Versioned, new: Mapping[str, Any], version: int, *, due: bool) -> None:
        """Record what changed: only what is urgent, unless an update is due."""
        for name, value in new.items():
            changed = name not in sent or sent[name][1] != value
            if changed and (due or name not in MOVING or name not in sent):
                sent[name], self._state = (version, value), version

    def say(self, text: str) -> None:
        """Add a line from mwmagic to the log."""
        self.journal.add(-1, [LogLine(Mark.NOTE, encodable(text))])

    def state(self, since: int = 0) -> dict[str, Any]:
        """Return the state, or the part of it that changed since a version."""
        stacks = self._stacks[1] if self._stacks[0] >= since else None
        return {
            "header": _changed(self._header, since),
            "hosts": _all_changed(self._hosts, since),
            "rows": _all_changed(self._rows, since),
            "figures": _changed(self._figures, since),
            "stacks": stacks,
        }

    @property
    def saved(self) -> dict[str, Any]:
        """The state that a notebook keeps: without the stacks and figures, which are large."""
        return {**self.state(), "stacks": "", "figures": {}}

    @property
    def figures(self) -> list[Figure]:
        """The last figures that programs showed."""
        return last_figures(self._paths)

    # The logs.

    def _follow(self, run: RunStatus) -> None:
        """Open the logs of new processes."""
        if run.attempt != self._attempt:
            self._attempt = run.attempt
            self.collect(AHEAD_BYTES)
            self.say(f"attempt {self._attempt}")
        for index, task in enumerate(run.tasks.values()):
            follower, log = self._followers[index], task.log
            if log is not None and (follower is None or str(follower.path) != log):
                self._close(index)
                follower = Follower(Path(log), self._guard, lag=LAG, ansi=True)
                self._followers[index] = follower
            if follower is not None and task.rest and task.rest.path:
                follower.sequel = Path(task.rest.path)

    def _close(self, index: int) -> None:
        follower = self._followers[index]
        if follower is not None:
            while lines := follower.read(AHEAD_BYTES):
                self._show(index, lines)
            self._show(index, follower.close())

    def _show(self, index: int, lines: Iterable[LogLine]) -> None:
        self.journal.add(index, (shortened(line) for line in lines if line.mark != Mark.OURS))

    def collect(self, limit: int) -> bool:
        """Read what the tasks printed, up to `limit` bytes; return whether there was anything."""
        grown = [(i, one) for i, one in enumerate(self._followers) if one and one.behind > 0]
        for index, follower in grown:
            self._show(index, follower.read(max(limit // len(grown), 1000)))
        return bool(grown)

    def finish(self) -> None:
        """Show the last line of each log, even without a newline: the logs are complete."""
        for index, follower in enumerate(self._followers):
            if follower is not None:
                self._show(index, follower.close())

    def whole(self, task: int) -> Whole:
        """Return the log of the task at this index, or every log for -1."""
        chosen = self._followers if task < 0 else self._followers[task : task + 1]
        return Whole([follower.path for follower in chosen if follower is not None])

    @property
    def behind(self) -> bool:
        """Whether a log has grown since it was read."""
        return any(one.behind > 0 for one in self._followers if one is not None)

    def flooded(self) -> bool:
        """Return whether the tasks have printed more than was read since the last question."""
        before, self._behind = self._behind, sum(one.behind for one in self._followers if one)
        return self._behind > max(before, FLOOD_BYTES)

    # Packets.

    def packet(self, at: Cursor, limit: int) -> tuple[dict[str, Any], Cursor] | None:
        """Return what a page at a position lacks, and its position afterwards."""
        turns = AHEAD_BYTES // TURN_BYTES
        texts, text = self.journal.texts(at.text, limit)
        while turns and text == self.journal.next and self.collect(TURN_BYTES):
            texts, text = self.journal.texts(at.text, limit)
            turns -= 1
        self._guard.call("metrics", False, self.series.read)  # noqa: FBT003 - neutral
        points, point = self.series.since(at.point, PACKET_POINTS)
        self._look()
        to = Cursor(text, point, self._state + 1)
        if to == at:
            return None
        log = {"from": at, "to": to, "texts": texts}
        news = {"points": [self._told(one) for one in points], **self.state(at.state)}
        told = {name: new for name, new in news.items() if new not in _NOTHING}
        return {"run": self.number, **log, **told}, to

    def _told(self, point: Point) -> list[Any]:
        """Return a point as it is sent to a page."""
        x = int(point.x) if point.x.is_integer() else point.x  # shorter
        task, attempt, metric = point.key
        return [self._names.index(task), attempt, metric and encodable(metric), x, point.y]

    def _look(self) -> None:
        """Record the lines that are still being written, and where each task's texts begin."""
        for index, follower in enumerate(self._followers):
            first = self.journal.first(index)
            if index in self._shown:
                line = "" if follower is None else follower.current
                new = {"live": clipped(line, LIVE_LINE_CHARACTERS), "first": first}
            else:
                new = {"first": first} if first else {}
            self._note(self._rows[index], new, self._state + 1, due=True)


def _changed(sent: Versioned, since: int) -> dict[str, Any]:
    return {name: value for name, (version, value) in sent.items() if version >= since}


def _all_changed(several: Sequence[Versioned], since: int) -> dict[int, dict[str, Any]]:
    """Return what changed of each, without those of which nothing did."""
    found = {index: _changed(sent, since) for index, sent in enumerate(several)}
    return {index: new for index, new in found.items() if new}
