"""``%mw_logs``: what tasks printed."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from mwmagic.client.following import pieces
from mwmagic.errors import BadArguments, NoRun
from mwmagic.logs.reading import pattern, read
from mwmagic.logs.terminal import plain
from mwmagic.model.cluster import Task, TaskName

from .magic import magic
from .parser import Parser

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

    from mwmagic.client.run import Run
    from mwmagic.record import Record

    from .session import Session

__all__ = ["mw_logs"]


def _logs() -> Parser:
    parser = Parser("%mw_logs", "Show what a task printed, as a terminal would.")
    add = parser.add_argument
    add("task", nargs="?", default=None, help="1, worker:1 or chief (default: every task).")
    raw = "Include the framework's notices and every update of a progress bar."
    add("--raw", action="store_true", help=raw)
    add("--ansi", action="store_true", help="Keep the colours.")
    tail = "Only the last N lines (default: 1000; 0: all)."
    add("--tail", type=int, default=1000, metavar="N", help=tail)
    add("--grep", metavar="PATTERN", help="Only lines that match this regular expression.")
    add("--follow", action="store_true", help="Print lines as they come, until the run is over.")
    run = "The logs of an earlier run; %%mw_runs lists them."
    add("--run", type=int, metavar="NUMBER", help=run)
    add("--attempt", type=int, metavar="N", help="The logs of an earlier attempt.")
    return parser


@magic(_logs(), shows=True)
def mw_logs(session: Session, given: Namespace, _cell: str) -> str | None:
    """Show what tasks printed."""
    run = _going(session, given) if given.follow else None
    if run is not None:
        return "\n".join(_follow(session, given, run))
    text = "\n".join(_lines(given, session.record(given.run)))
    if not given.out:
        session.say(text)
    return text


def _lines(given: Namespace, record: Record) -> list[str]:
    chosen = [Task.parse(given.task)] if given.task is not None else list(record.known_tasks())
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


def _going(session: Session, given: Namespace) -> Run | None:
    """Return the run to follow, or None if it is over and its log complete."""
    if given.attempt is not None:
        raise BadArguments("--follow shows each attempt as it comes; leave out --attempt")
    run = session.run(given.run)
    if run is not None:
        return run
    record = session.record(given.run)
    if not record.status.over:
        raise BadArguments(
            f"run {record.number} is not a run of this notebook's cluster, so it cannot be "
            "followed here; leave out --follow to see its logs so far"
        )
    return None


def _follow(session: Session, given: Namespace, run: Run) -> list[str]:
    """Print the last lines so far, then new lines as they come, until the run is over."""
    wanted = pattern(given.grep or "")
    tail, shown = given.tail, []
    for lines in pieces(run, given.task, raw=given.raw, ansi=given.ansi):
        found = [(task, line) for task, line in lines if wanted.search(plain(line))]
        for text in _last(found, tail, named=given.task is None):
            session.say(text)
            shown.append(text)
        tail = 0
    return shown


def _last(lines: Sequence[tuple[str, str]], count: int, *, named: bool) -> list[str]:
    """Return the last lines of each task, after a note of how many are left out; 0 is all."""
    kept: list[str] = []
    found: Counter[str] = Counter()
    for task, line in reversed(lines):
        found[task] += 1
        if count <= 0 or found[task] <= count:
            kept.append(f"[{task}] {line}" if named else line)
    if len(kept) < len(lines):
        left = len(lines) - len(kept)
        kept.append(f"... {left} earlier lines not shown, `--tail 0` shows them")
    return kept[::-1]
