"""What is sent to a page about a run: its state, log lines and points, in small packets."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mwmagic.logs.follower import Follower, Lag
from mwmagic.logs.guard import Guard
from mwmagic.logs.lines import LogLine, Mark, shortened
from mwmagic.logs.terminal import clipped
from mwmagic.model.status import TaskState
from mwmagic.model.text import encodable, sendable
from mwmagic.record import RunPaths
from mwmagic.words.log import fault_words, left_out_words

from .journal import Journal
from .pages import Cursor
from .rows import Load, header, row
from .series import Series
from .whole import Whole

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mwmagic.model.status import RunStatus

    from .rows import View
    from .series import Point

__all__ = ["Feed"]

AHEAD_BYTES = 96_000
"""Maximum read for one packet."""

TURN_BYTES = 8_000
"""How much is read at a time, until there is enough for the packet."""

LAG = Lag(2**20, left_out_words)
"""How far a reader may fall behind a log before it skips ahead: a page keeps fewer lines."""

PACKET_POINTS = 1000
"""Maximum in one packet."""

MOVING_SECONDS = 0.2
"""Time between two updates of the values that keep changing."""

MOVING = {"part", "progress", "metrics", "usage"}
"""The parts of a row that keep changing."""

_NOTHING: tuple[object, ...] = (None, {}, [])
"""Values left out of a packet. An empty string is sent, because it clears the old one."""

LIVE_LINE_CHARACTERS = 300
"""Maximum length shown of a line that is still being written."""


class Feed:
    """One run, as it is sent to its pages.

    Parameters
    ----------
    view : View
        What the pages show first.
    """

    def __init__(self, view: View) -> None:
        run = view.run
        self.number = run.number
        self.series = Series(RunPaths(Path(run.directory)).metrics, run.tasks)
        self.journal = Journal()
        self._guard = Guard(lambda fault: self.say(fault_words(fault)))
        self._names = list(run.tasks)
        self._followers: list[Follower | None] = [None] * len(run.tasks)
        self._state = 0
        self._stacks = (0, "")
        self._header: tuple[int, dict[str, Any]] = (0, {})
        self._rows: list[dict[str, tuple[int, Any]]] = [{} for _ in run.tasks]
        self._paced = 0.0
        self._taken: tuple[View, bool] | None = None
        self._loads = [Load() for _ in run.tasks]
        self._attempt = 1
        self.update(view)

    # The state.

    def update(self, view: View) -> None:
        """Update the state from a newer status."""
        run = view.run
        due = run.over or time.monotonic() - self._paced >= MOVING_SECONDS
        if self._taken in ((view, True), (view, due)):
            return  # nothing is new
        self._taken = (view, due)
        version = self._state + 1
        new = sendable(header(view))
        if new != self._header[1]:
            self._header, self._state = (version, new), version
        if view.stacks != self._stacks[1]:
            self._stacks, self._state = (version, view.stacks), version
        now = time.monotonic()
        self._paced = now if due else self._paced
        for index, task in enumerate(run.tasks.values()):
            self._loads[index].take(task.cpu, now)
            share = self._loads[index].share if task.state is TaskState.RUNNING else None
            self._note(self._rows[index], sendable(row(task, share)), version, due=due)
        self._follow(run)

    def _note(
        self, kept: dict[str, tuple[int, Any]], new: dict[str, Any], version: int, *, due: bool
    ) -> None:
        """Record what changed in a row: only what is urgent, unless an update is due."""
        for name, value in new.items():
            changed = name not in kept or kept[name][1] != value
            if changed and (due or name not in MOVING or name not in kept):
                kept[name], self._state = (version, value), version

    def say(self, text: str) -> None:
        """Add a line from mwmagic to the log."""
        self.journal.add(-1, [LogLine(Mark.NOTE, encodable(text))])

    def state(self, since: int = 0) -> dict[str, Any]:
        """Return the state, or the part of it that changed since a version."""
        rows: dict[int, dict[str, Any]] = {}
        for index, kept in enumerate(self._rows):
            new = {name: value for name, (version, value) in kept.items() if version >= since}
            rows |= {index: new} if new else {}
        header = self._header[1] if self._header[0] >= since else None
        stacks = self._stacks[1] if self._stacks[0] >= since else None
        return {"header": header, "rows": rows, "stacks": stacks}

    @property
    def saved(self) -> dict[str, Any]:
        """The state that a notebook keeps: without the stacks, which are long."""
        return {**self.state(), "stacks": ""}

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
                self._followers[index] = Follower(Path(log), self._guard, lag=LAG, ansi=True)

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

    # Packets.

    def packet(self, at: Cursor, limit: int) -> tuple[dict[str, Any], Cursor] | None:
        """Return what a page at a position lacks, and its position afterwards.

        Parameters
        ----------
        at : Cursor
            The page's position.
        limit : int
            Maximum characters of log text.

        Returns
        -------
        tuple or None
            None if it lacks nothing.
        """
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
            live = clipped(follower.current, LIVE_LINE_CHARACTERS) if follower is not None else ""
            new = {"live": live, "first": self.journal.first(index)}
            self._note(self._rows[index], new, self._state + 1, due=True)
