"""What is written to recorded runs, and which go: ``%mw_note``, ``%mw_tag`` and ``%mw_gc``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mwmagic.client import records as work
from mwmagic.record import runs

from .magic import Parser, magic

if TYPE_CHECKING:
    from argparse import Namespace

    from .session import Session

__all__ = ["mw_gc", "mw_note", "mw_tag"]

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
