"""Follows what the tasks of a run print."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mwmagic.logs.follower import Follower
from mwmagic.logs.guard import Guard
from mwmagic.logs.lines import QUIET
from mwmagic.model.cluster import find_task
from mwmagic.record import TaskPaths
from mwmagic.words.log import fault_words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mwmagic.model.cluster import TaskName
    from mwmagic.model.fault import Fault

    from .run import Run

__all__ = ["Following", "follow", "pieces"]

FOLLOW_SECONDS = 0.1
"""Pause between two looks at the logs."""


class Following:
    """Follows the logs of a run's tasks through its attempts.

    Parameters
    ----------
    run : Run
        The run.
    task : int, str or Task, optional
        Only this task's.
    raw : bool
        Whether to keep the framework's notices.
    ansi : bool
        Whether to keep the colours.
    """

    def __init__(
        self, run: Run, task: TaskName | None = None, *, raw: bool = False, ansi: bool = False
    ) -> None:
        self._run = run
        self._wanted = None if task is None else str(find_task(task, run.cluster.tasks))
        self._raw = raw
        self._ansi = ansi
        self._faults: list[Fault] = []
        self._guard = Guard(self._faults.append)
        self._followers: dict[tuple[str, int], Follower] = {}
        self._first = run.status().attempt
        self._current: dict[str, int] = {}

    def new(self) -> list[tuple[str, str]]:
        """Return the lines that came since the last call, each with its task."""
        status = self._run.status()
        lines: list[tuple[str, str]] = []
        for name, task in status.tasks.items():
            if task.log and self._wanted in (None, name):
                found = self._one(name, Path(task.log), last=status.over)
                lines += [(name, line) for line in found]
        return lines

    def _one(self, name: str, path: Path, *, last: bool) -> list[str]:
        """Read the new lines of a task's log, and the rest of those of past attempts."""
        paths = TaskPaths(path)
        lines: list[str] = []
        for attempt in range(self._current.get(name, self._first), paths.attempt + 1):
            follower = self._follower(name, attempt, paths.in_attempt(attempt).log)
            read = follower.rest()
            if last or attempt < paths.attempt:
                read += follower.close()
            lines += [line.text for line in read if self._raw or line.mark not in QUIET]
        self._current[name] = paths.attempt
        notes = [f"mwmagic: {fault_words(fault)}" for fault in self._faults]
        self._faults.clear()
        return lines + notes

    def _follower(self, name: str, attempt: int, log: Path) -> Follower:
        if (name, attempt) not in self._followers:
            self._followers[name, attempt] = Follower(log, self._guard, ansi=self._ansi)
        return self._followers[name, attempt]


def pieces(
    run: Run, task: TaskName | None = None, *, raw: bool = False, ansi: bool = False
) -> Iterator[list[tuple[str, str]]]:
    """Yield what the tasks have printed since the last look, until the run is over.

    Yields
    ------
    list of tuple
        Each line with its task's name; empty if there is nothing new.

    Raises
    ------
    SupervisorLost
        The supervisor went away first.
    """
    following = Following(run, task, raw=raw, ansi=ansi)
    over = False
    while not over:
        over = run.ended_within(FOLLOW_SECONDS)
        yield following.new()


def follow(
    run: Run, task: TaskName | None = None, *, raw: bool = False
) -> Iterator[tuple[str, str]]:
    """Yield each line that the tasks print, one by one; see `pieces`."""
    for lines in pieces(run, task, raw=raw):
        yield from lines
