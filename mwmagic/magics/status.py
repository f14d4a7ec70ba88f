"""The state and output of runs, and how they compare: ``%mw_status``, ``%mw_runs`` and others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mwmagic.client.arguments import (
    add_compare_options,
    add_table_options,
    compared,
    reader,
    table_runs,
)
from mwmagic.client.reading import add_log_options, pieces, recorded
from mwmagic.dashboard.comparison import NotebookComparison
from mwmagic.dashboard.static import page, text
from mwmagic.dashboard.table import NotebookTable
from mwmagic.errors import BadArguments
from mwmagic.model.option import read_count
from mwmagic.record import runs

from .magic import Parser, magic

if TYPE_CHECKING:
    from argparse import Namespace

    from mwmagic.client.run import Run, Stacks
    from mwmagic.model.status import RunStatus
    from mwmagic.record import Record

    from .session import Session

__all__ = ["mw_compare", "mw_logs", "mw_runs", "mw_show", "mw_stacks", "mw_status"]


@magic(Parser("%mw_status", "Show the run and each of its tasks."))
def mw_status(session: Session, _given: Namespace, _cell: str) -> StatusTable:
    """Show the run and its tasks."""
    run = session.run()
    return StatusTable(session.record().status if run is None else run.status())


_STACKS = Parser("%mw_stacks", "Show where each task is, stragglers first.")
_STACKS.add_argument("--full", action="store_true", help="Include every thread's stack.")


@magic(_STACKS, shows=True)
def mw_stacks(session: Session, given: Namespace, _cell: str) -> Stacks:
    """Show where each task is."""
    stacks = session.latest().stacks()
    session.say(stacks.full if given.full else str(stacks))
    return stacks


_RUNS = Parser("%mw_runs", "Show the recorded runs in a table, and how they differ.")
add_table_options(_RUNS)


@magic(_RUNS)
def mw_runs(session: Session, given: Namespace, _cell: str) -> NotebookTable:
    """List the runs."""
    return NotebookTable(**table_runs(session.directory, given))


_COMPARE = Parser("%mw_compare", "Show two runs or more side by side: what differs, and curves.")
add_compare_options(_COMPARE)


@magic(_COMPARE)
def mw_compare(session: Session, given: Namespace, _cell: str) -> NotebookComparison:
    """Compare runs."""
    return NotebookComparison(compared(runs(session.directory), given), given.metrics)


_SHOW = Parser(
    "%mw_show", "Show a run below this cell: its dashboard while it is going, or its final state."
)
_SHOW.add_argument(
    "run",
    nargs="?",
    type=reader(read_count),
    metavar="RUN",
    help="Its number from %%mw_runs (default: the latest).",
)


@magic(_SHOW, shows=True)
def mw_show(session: Session, given: Namespace, _cell: str) -> Run | Record:
    """Show a run below this cell."""
    run = session.run(given.run)
    record = session.record(given.run)
    if session.quiet:
        return run or record
    if run is not None:
        session.displays.show_any(run)
    else:
        session.displays.keep(record, record.status)
    return run or record


class StatusTable:
    """A run's state at one moment."""

    def __init__(self, status: RunStatus) -> None:
        self.status = status

    def __repr__(self) -> str:
        return text(self.status)

    def _repr_html_(self) -> str:
        return page(self.status)


DEFAULT_TAIL_LINES = 1000
"""How many lines a cell shows unless you ask for more."""


def _logs() -> Parser:
    parser = Parser("%mw_logs", "Show what a task printed, as a terminal would.")
    add_log_options(parser, tail=DEFAULT_TAIL_LINES)
    what = "Print lines as they come, until the run is over."
    parser.add_argument("--follow", action="store_true", help=what)
    return parser


@magic(_logs(), shows=True)
def mw_logs(session: Session, given: Namespace, _cell: str) -> str | None:
    """Show what tasks printed."""
    run = _going(session, given) if given.follow else None
    if run is not None:
        return "\n".join(_follow(session, given, run))
    text = "\n".join(recorded(session.record(given.run), given))
    if not given.out:
        session.say(text)
    return text


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
    how = {"raw": given.raw, "ansi": given.ansi, "grep": given.grep, "tail": given.tail}
    shown: list[str] = []
    for lines in filter(None, pieces(run, given.task, **how)):
        texts = [line if given.task is not None else f"[{task}] {line}" for task, line in lines]
        session.say("\n".join(texts))
        shown += texts
    return shown
