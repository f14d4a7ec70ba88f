"""Follows what the tasks of a run print."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mwmagic.logs.guard import Guard
from mwmagic.model.cluster import find_task
from mwmagic.model.variables import ANNOUNCED
from mwmagic.record import TaskPaths
from mwmagic.words.log import fault_words

from .reading import pattern
from .view import TAIL_CHARACTERS, LogView

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mwmagic.model.cluster import TaskName
    from mwmagic.model.fault import Fault
    from mwmagic.model.status import TaskStatus

    from .run import Run

__all__ = ["Following", "follow", "pieces"]

FOLLOW_SECONDS = 0.1
"""Pause between two looks at the logs."""


class Following:
    """Follows the logs of a run's tasks through its attempts."""

    def __init__(
        self,
        run: Run,
        task: TaskName | None = None,
        *,
        raw: bool = False,
        ansi: bool = False,
        grep: str | None = None,
        tail: int | None = None,
    ) -> None:
        self._run = run
        self._wanted = None if task is None else str(find_task(task, run.cluster.tasks))
        self._faults: list[Fault] = []
        self._view = partial(
            LogView,
            guard=Guard(self._faults.append),
            raw=raw,
            ansi=ansi,
            wanted=pattern(grep),
            cut=tail is not None and not raw,
        )
        self._tail = tail or 0
        self._views: dict[tuple[str, int], LogView] = {}
        self._first = run.status().attempt
        self._current: dict[str, int] = {}

    def new(self) -> list[tuple[str, str]]:
        """Return the lines that came since the last call, each with its task."""
        status = self._run.status()
        lines: list[tuple[str, str]] = []
        for name, task in status.tasks.items():
            if task.log and self._wanted in (None, name):
                found = self._one(name, task, last=status.over)
                lines += [(name, line) for line in found]
        self._tail = 0
        return lines

    def _one(self, name: str, task: TaskStatus, *, last: bool) -> list[str]:
        """Read the new lines of a task's log, and the rest of those of past attempts."""
        paths = TaskPaths(Path(task.log or ""))
        current = self._of(name, paths.attempt, paths.log)
        current.go_on_in(Path(task.rest.path) if task.rest and task.rest.path else None)
        lines: list[str] = []
        for attempt in range(self._current.get(name, self._first), paths.attempt + 1):
            view = self._of(name, attempt, paths.in_attempt(attempt).log)
            lines += view.last(self._tail, self._limit, growing=True) if self._tail else view.new()
            if last or attempt < paths.attempt:
                lines += view.close()
        self._current[name] = paths.attempt
        notes = [f"{ANNOUNCED}{fault_words(fault)}" for fault in self._faults]
        self._faults.clear()
        return lines + notes

    @property
    def _limit(self) -> int:
        """How many characters the last lines of a task may have."""
        return TAIL_CHARACTERS // (1 if self._wanted else len(self._run.status().tasks))

    def _of(self, name: str, attempt: int, log: Path) -> LogView:
        if (name, attempt) not in self._views:
            self._views[name, attempt] = self._view(log)
        return self._views[name, attempt]


def pieces(
    run: Run,
    task: TaskName | None = None,
    **how: Any,  # noqa: ANN401 - see Following
) -> Iterator[list[tuple[str, str]]]:
    """Yield what the tasks have printed since the last look, until the run is over."""
    following = Following(run, task, **how)
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
