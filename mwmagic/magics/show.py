"""``%mw_show``, and a `Run` as the value of a cell: show a run again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mwmagic.client.arguments import reader
from mwmagic.client.run import Run
from mwmagic.model.option import read_count

from .magic import magic
from .parser import Parser

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable

    from IPython.core.interactiveshell import InteractiveShell

    from mwmagic.record import Record

    from .display import Displays
    from .session import Session

__all__ = ["install", "mw_show"]

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


def install(shell: InteractiveShell, displays: Displays) -> Callable[[], None]:
    """Make a `Run` show itself as a cell's value; return a function that undoes it."""
    formatter = shell.display_formatter.ipython_display_formatter
    formatter.for_type(Run, displays.show_any)
    return lambda: formatter.pop(Run, None)
