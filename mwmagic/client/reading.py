"""Logs as ``%mw_logs`` and ``mwmagic logs`` show them, and the options that both take."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mwmagic.errors import BadArguments, NoRun
from mwmagic.logs.guard import Guard
from mwmagic.model.option import read_count
from mwmagic.words.log import fault_words

from .arguments import reader
from .view import TAIL_CHARACTERS, LogView

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterator
    from pathlib import Path

    from mwmagic.model.cluster import TaskName
    from mwmagic.model.fault import Fault
    from mwmagic.record import Record

__all__ = ["add_log_options", "pattern", "read", "recorded"]


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


def _one(record: Record, task: TaskName, given: Namespace, limit: int) -> list[str]:
    path = record.log_path(task, given.attempt)
    how = {"raw": given.raw, "ansi": given.ansi, "tail": given.tail, "grep": given.grep}
    return read(path, limit=limit, **how)


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
    faults: list[Fault] = []
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
