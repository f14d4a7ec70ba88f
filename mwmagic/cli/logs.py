"""``mwmagic logs``: what the tasks of a run printed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mwmagic.client.reading import add_log_options, recorded
from mwmagic.errors import NoRun
from mwmagic.record import runs

if TYPE_CHECKING:
    import argparse

    from mwmagic.record import Record

__all__ = ["add"]


def add(command: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_log_options(command, tail=0)
    command.set_defaults(action=_logs)


def _logs(given: argparse.Namespace) -> int:
    for line in recorded(_record(given.run), given):
        print(line)
    return 0


def _record(number: int | None) -> Record:
    known = {record.number: record for record in runs()}
    if not known:
        raise NoRun(f"no runs are recorded in {Path.cwd()}; `mwmagic run -n 2 main.py` records one")
    chosen = max(known) if number is None else number
    if chosen not in known:
        raise NoRun(f"there is no run {chosen}; the recorded runs are {', '.join(map(str, known))}")
    return known[chosen]
