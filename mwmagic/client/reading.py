"""Logs as people read them: of recorded runs, and of a run while it runs."""

from __future__ import annotations

import re
from collections import deque
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mwmagic.errors import BadArguments, NoRun
from mwmagic.logs import Guard
from mwmagic.logs.lines import LINE_CHARACTERS, Fold, Follower, Hidden
from mwmagic.logs.terminal import plain
from mwmagic.model.cluster import find_task
from mwmagic.model.option import read_count
from mwmagic.model.values import encodable
from mwmagic.model.variables import ANNOUNCED
from mwmagic.record import TaskPaths
from mwmagic.words.run import earlier_words, fault_words, hidden_words

from .arguments import reader

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterable, Iterator, Sequence

    from mwmagic.logs.lines import LogLine
    from mwmagic.model.cluster import TaskName
    from mwmagic.model.status import ParserFault, TaskStatus
    from mwmagic.record import Record

    from .run import Run

__all__ = [
    "TAIL_BYTES",
    "TAIL_CHARACTERS",
    "Following",
    "LogView",
    "add_log_options",
    "chosen_view",
    "log_objects",
    "pattern",
    "pieces",
    "read",
    "recorded",
]

TAIL_BYTES = (2**18, 2**21, 2**24)
"""How far before the end of a log to look for its last lines, tried in this order."""

TAIL_CHARACTERS = 2**20
"""How long the last lines may be in total, of all logs that are shown together."""

FOLLOW_SECONDS = 0.1
"""Pause between two looks at the logs."""


def add_log_options(parser: ArgumentParser, *, tail: int) -> None:
    """Add the options that say which logs of a run to show, and how."""
    add = parser.add_argument
    add("task", nargs="?", help="1, worker:1 or chief (default: every task).")
    raw = "Include the framework's notices, mwmagic's frames, and every update of a progress bar."
    add("--raw", action="store_true", help=raw)
    add("--ansi", action="store_true", help="Keep the colours.")
    default = f"{tail}; 0: all" if tail else "all"
    what = f"Only the last N lines (default: {default})."
    count = reader(read_count)
    add("--tail", type=count, default=tail, metavar="N", help=what)
    add("--grep", metavar="PATTERN", help="Only lines that match this regular expression.")
    add("--run", type=count, metavar="NUMBER", help="The run's number (default: the latest run).")
    add("--attempt", type=count, metavar="N", help="The logs of an earlier attempt.")


def recorded(record: Record, given: Namespace) -> Iterator[str]:
    """Yield the lines of a recorded run's logs; a line before each task's names it."""
    if given.task is not None:
        yield from _one(record, given.task, given, TAIL_CHARACTERS)
        return
    tasks = record.known_tasks()
    for task in tasks:
        yield f"--- {task} ---"
        try:
            yield from _one(record, task, given, TAIL_CHARACTERS // len(tasks))
        except NoRun as error:
            yield str(error)


def log_objects(record: Record, given: Namespace) -> list[dict[str, Any]]:
    """Return the logs of a recorded run as JSON values: an object for each task."""
    tasks = record.known_tasks()
    wanted = tasks if given.task is None else (find_task(given.task, tasks),)
    found: list[dict[str, Any]] = []
    for task in wanted:
        one: dict[str, Any] = {"task": str(task), "attempt": None, "path": None, "lines": []}
        try:
            path = record.log_path(task, given.attempt)
        except NoRun:
            found.append(one)
            continue
        lines = _one(record, task, given, TAIL_CHARACTERS // len(tasks))
        attempt, whole = TaskPaths(path).attempt, str(path.absolute())
        found.append({**one, "attempt": attempt, "path": whole, "lines": lines})
    return found


def chosen_view(given: Namespace) -> dict[str, Any]:
    """Return how the options say that logs are shown, as `read` and `pieces` take it."""
    return {"raw": given.raw, "ansi": given.ansi, "tail": given.tail, "grep": given.grep}


def _one(record: Record, task: TaskName, given: Namespace, limit: int) -> list[str]:
    path = record.log_path(task, given.attempt)
    return read(path, limit=limit, **chosen_view(given))


def read(
    path: Path,
    *,
    raw: bool = False,
    ansi: bool = False,
    tail: int = 0,
    grep: str | None = None,
    limit: int = TAIL_CHARACTERS,
) -> list[str]:
    """Return a log's lines."""
    faults: list[ParserFault] = []
    cut = tail > 0 or not raw
    view = LogView(path, Guard(faults.append), raw=raw, ansi=ansi, wanted=pattern(grep), cut=cut)
    lines = view.last(tail, limit) if tail > 0 else [*view.new(), *view.close()]
    return [*lines, *(f"... {fault_words(fault)}" for fault in faults)]


def pattern(text: str | None) -> re.Pattern[str] | None:
    """Return what ``--grep`` takes, compiled; None where it was not typed."""
    try:
        return None if text is None else re.compile(text)
    except re.error as error:
        message = f"--grep {text!r} is not a valid regular expression: {error}"
        raise BadArguments(message) from error


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
        self._faults: list[ParserFault] = []
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
        """Read the new lines of a task's log, and of those of past attempts.

        An agent that was lost may continue, and write what it had not read yet.
        """
        paths = TaskPaths(Path(task.log or ""))
        current = self._of(name, paths.attempt, paths.log)
        current.go_on_in(Path(task.rest.path) if task.rest and task.rest.path else None)
        lines: list[str] = []
        for attempt in range(self._first, paths.attempt + 1):
            view = self._of(name, attempt, paths.in_attempt(attempt).log)
            lines += view.last(self._tail, self._limit, growing=True) if self._tail else view.new()
            if last or attempt < paths.attempt:
                lines += view.close()
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
