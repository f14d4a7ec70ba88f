"""``%mw_status``, ``%mw_stacks`` and ``%mw_runs``: the state of runs and tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mwmagic.record import runs

from .magic import magic
from .parser import Parser
from .tables import RunTable, StatusTable

if TYPE_CHECKING:
    from argparse import Namespace

    from mwmagic.client.run import Stacks

    from .session import Session

__all__ = ["mw_runs", "mw_stacks", "mw_status"]


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


@magic(Parser("%mw_runs", "List the recorded runs."))
def mw_runs(session: Session, _given: Namespace, _cell: str) -> RunTable:
    """List the runs."""
    return RunTable(runs(session.directory))
