"""``%mw_show``: show a run again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mwmagic.client.arguments import reader
from mwmagic.model.option import read_count

from .magic import magic
from .parser import Parser

if TYPE_CHECKING:
    from argparse import Namespace

    from mwmagic.client.run import Run
    from mwmagic.record import Record

    from .session import Session

__all__ = ["mw_show"]

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
