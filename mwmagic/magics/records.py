"""The recorded runs: a table of them, one or several shown, notes and tags, and which may go."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mwmagic.client import records as work
from mwmagic.client.arguments import (
    add_compare_options,
    add_table_options,
    compared,
    reader,
    table_runs,
)
from mwmagic.dashboard.runs import NotebookComparison, NotebookTable
from mwmagic.model.option import read_count
from mwmagic.record import runs

from .magic import Parser, magic

if TYPE_CHECKING:
    from argparse import Namespace

    from mwmagic.client.run import Run
    from mwmagic.record import Record

    from .session import Session

__all__ = ["mw_compare", "mw_gc", "mw_note", "mw_runs", "mw_show", "mw_tag"]

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
    found = session.run(given.run) or session.record(given.run)
    if not session.quiet:
        session.displays.show_any(found)
    return found


_NOTE = Parser("%mw_note", "Write a note to a recorded run, or show it.")
work.add_note(_NOTE)


@magic(_NOTE, shows=True)
def mw_note(session: Session, given: Namespace, _cell: str) -> str:
    """Write a note to a run."""
    record = session.record(given.run)
    session.say(work.note(record, given))
    return record.note


_TAG = Parser("%mw_tag", "Give a recorded run tags such as baseline, or take them away.")
work.add_tags(_TAG)


@magic(_TAG, shows=True)
def mw_tag(session: Session, given: Namespace, _cell: str) -> tuple[str, ...]:
    """Give a run tags."""
    record = session.record(given.run)
    session.say(work.tag(record, given))
    return record.tags


_GC = Parser("%mw_gc", "Remove old runs: first list them, then remove them with --yes.")
work.add_cleaning(_GC)


@magic(_GC, shows=True)
def mw_gc(session: Session, given: Namespace, _cell: str) -> None:
    """Remove old runs."""
    for line in work.clean(runs(session.directory), given):
        session.say(line)
