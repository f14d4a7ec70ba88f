"""``%mw_logs``: what tasks printed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mwmagic.client.following import follow
from mwmagic.errors import NoRun
from mwmagic.logs.reading import pattern, read
from mwmagic.model.cluster import Task, TaskName

from .magic import magic
from .parser import Parser

if TYPE_CHECKING:
    from argparse import Namespace

    from mwmagic.client.run import Run
    from mwmagic.record import Record

    from .session import Session

__all__ = ["mw_logs"]


def _logs() -> Parser:
    parser = Parser("%mw_logs", "Show what a task printed, as a terminal would.")
    add = parser.add_argument
    add("task", nargs="?", default=None, help="1, worker:1 or chief; by default every task.")
    add("--raw", action="store_true", help="With TensorFlow's notices and every update of a bar.")
    add("--ansi", action="store_true", help="Keep the colours.")
    add("--tail", type=int, default=1000, metavar="N", help="The last N lines (1000); 0 is all.")
    add("--grep", metavar="PATTERN", help="Only lines that match this regular expression.")
    add("--follow", action="store_true", help="Go on until the run is over.")
    add("--run", type=int, metavar="NUMBER", help="Of an earlier run; see %%mw_runs.")
    add("--attempt", type=int, metavar="N", help="Of an earlier attempt.")
    return parser


@magic(_logs(), shows=True)
def mw_logs(session: Session, given: Namespace, _cell: str) -> str | None:
    """Show what tasks printed."""
    record = session.record(given.run)
    if given.follow and given.run is None:
        _follow(given, session.latest())
        return None
    text = "\n".join(_lines(given, record))
    if not given.out:
        session.say(text)
    return text


def _lines(given: Namespace, record: Record) -> list[str]:
    chosen = [Task.parse(given.task)] if given.task is not None else list(record.tasks)
    lines: list[str] = []
    for task in chosen:
        head = [f"--- {task} ---"] if given.task is None else []
        lines += head + _one(given, record, task)
    return lines


def _one(given: Namespace, record: Record, task: TaskName) -> list[str]:
    try:
        path = record.log_path(task, given.attempt)
    except NoRun as error:
        if given.task is not None:
            raise
        return [str(error)]
    return read(path, raw=given.raw, ansi=given.ansi, tail=given.tail, grep=given.grep)


def _follow(given: Namespace, run: Run) -> None:
    """Print the lines that come, until the run is over."""
    wanted = pattern(given.grep or "")
    for task, line in follow(run, given.task, raw=given.raw):
        if wanted.search(line):
            print(line if given.task is not None else f"[{task}] {line}")  # noqa: T201
