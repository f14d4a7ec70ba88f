"""``mwmagic logs``: what the tasks of a run printed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mwmagic.errors import NoRun
from mwmagic.logs.reading import read
from mwmagic.record import runs

if TYPE_CHECKING:
    import argparse

    from mwmagic.model.cluster import TaskName
    from mwmagic.record import Record

__all__ = ["add"]


def add(command: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add = command.add_argument
    add("task", nargs="?", help="1, worker:1 or chief (default: every task).")
    add("--run", type=int, metavar="NUMBER", help="The run's number (default: the latest run).")
    raw = "Include the framework's notices and every update of a progress bar."
    add("--raw", action="store_true", help=raw)
    add("--tail", type=int, default=0, metavar="N", help="Only the last N lines (default: all).")
    add("--grep", metavar="PATTERN", help="Only lines that match this regular expression.")
    command.set_defaults(action=_logs)


def _logs(given: argparse.Namespace) -> int:
    record = _recorded(given.run)
    if given.task is not None:
        _print(record, given.task, given)
        return 0
    for task in record.tasks:
        print(f"--- {task} ---")
        try:
            _print(record, task, given)
        except NoRun as error:
            print(error)
    return 0


def _recorded(number: int | None) -> Record:
    known = {record.number: record for record in runs()}
    if not known:
        raise NoRun(f"no runs are recorded in {Path.cwd()}; `mwmagic run -n 2 main.py` records one")
    chosen = max(known) if number is None else number
    if chosen not in known:
        raise NoRun(f"there is no run {chosen}; the recorded runs are {', '.join(map(str, known))}")
    return known[chosen]


def _print(record: Record, task: TaskName, given: argparse.Namespace) -> None:
    for line in read(record.log_path(task), raw=given.raw, tail=given.tail, grep=given.grep):
        print(line)
