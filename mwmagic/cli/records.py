"""Commands that read recorded runs or write to them; with ``--json`` for programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from mwmagic.client import profiling
from mwmagic.client import records as work
from mwmagic.client.arguments import (
    add_compare_options,
    add_table_options,
    compared,
    reader,
    table_runs,
)
from mwmagic.client.cluster import Cluster
from mwmagic.client.reading import add_log_options, log_objects, recorded
from mwmagic.client.records import Rerun
from mwmagic.dashboard import exports
from mwmagic.dashboard.runs import printed
from mwmagic.dashboard.static import text
from mwmagic.errors import NoRun, WaitTimeout
from mwmagic.experiments.compare import compare
from mwmagic.model.option import read_duration
from mwmagic.record import runs
from mwmagic.words.comparison import notices, plain
from mwmagic.words.run import headline
from mwmagic.words.table import RunTable

from .clusters import follow, listening, repeats
from .output import add_json, say, show

if TYPE_CHECKING:
    import argparse

    from mwmagic.record import Record

__all__ = [
    "TIMEOUT_CODE",
    "add_compare",
    "add_explain",
    "add_export",
    "add_gc",
    "add_logs",
    "add_note",
    "add_profile",
    "add_rerun",
    "add_runs",
    "add_show",
    "add_tag",
    "add_wait",
    "recorded_run",
]

TIMEOUT_CODE = 124
"""The exit code if the time is up, as that of ``timeout``."""


def recorded_run(number: int | None) -> Record:
    """Return a recorded run of this folder by its number, or the latest."""
    known = {record.number: record for record in runs()}
    if not known:
        raise NoRun(f"no runs are recorded in {Path.cwd()}; `mwmagic run -n 2 main.py` records one")
    chosen = max(known) if number is None else number
    if chosen not in known:
        raise NoRun(f"there is no run {chosen}; the recorded runs are {', '.join(map(str, known))}")
    return known[chosen]


def add_runs(command: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command that lists recorded runs."""
    add_table_options(command)
    form = command.add_mutually_exclusive_group()
    what = "Print a list of objects with all facts, parameters and metrics, for programs."
    form.add_argument("--json", action="store_true", help=what)
    form.add_argument("--csv", action="store_true", help="Print the table as CSV, for programs.")
    command.set_defaults(action=_runs)


def _runs(given: argparse.Namespace) -> int:
    table = RunTable(**table_runs(Path(), given))
    if given.json:
        print(table.as_json())
    elif given.csv:
        print(table.as_csv(), end="")
    else:
        print(printed(table))
    return 0


def add_compare(command: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command that compares recorded runs."""
    add_compare_options(command)
    command.set_defaults(action=_compare)


def _compare(given: argparse.Namespace) -> int:
    show(plain(compare(compared(runs(), given), given.metrics)))
    return 0


def add_show(command: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command that shows a run."""
    work.add_run(command)
    add_json(command)
    command.set_defaults(action=_show)


def _show(given: argparse.Namespace) -> int:
    record = recorded_run(given.run)
    if given.json:
        print(json.dumps(work.shown(record)))
        return 0
    show(text(record.status))
    for line in notices(record):
        show(line)
    return 0


def add_logs(command: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command that shows what tasks printed."""
    add_log_options(command, tail=0)
    add_json(command)
    command.set_defaults(action=_logs)


def _logs(given: argparse.Namespace) -> int:
    record = recorded_run(given.run)
    if given.json:
        print(json.dumps(log_objects(record, given)))
        return 0
    for line in recorded(record, given):
        print(line)
    return 0


def add_explain(command: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command that explains a failure."""
    work.add_run(command)
    add_json(command)
    command.set_defaults(action=_explain)


def _explain(given: argparse.Namespace) -> int:
    record = recorded_run(given.run)
    if record.trouble:
        say(record.trouble)
    found, lines = work.explained(record)
    show(json.dumps(found) if given.json else "\n".join(lines))
    return 0


def add_profile(command: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command that profiles a task of the latest run."""
    profiling.add_profile(command)
    command.set_defaults(action=_profile)


def _profile(given: argparse.Namespace) -> int:
    record = recorded_run(None)
    found = profiling.profile(record, given.task, given.seconds, risk=given.risk)
    for line in profiling.profile_lines(found):
        show(line)
    return 0


def add_wait(command: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command that waits for a run."""
    work.add_run(command)
    add = command.add_argument
    what = "Wait until this is true of the run, as 'val_loss<0.3 or epoch>3' (default: its end)."
    add("--until", metavar="FILTER", help=what)
    what = f"Give up after this time, such as 90 or 1h, with exit code {TIMEOUT_CODE}."
    add("--timeout", type=reader(read_duration), metavar="TIME", help=what)
    add_json(command)
    command.set_defaults(action=_wait)


def _wait(given: argparse.Namespace) -> int:
    record = recorded_run(given.run)
    try:
        code = 0 if work.wait_until(record, given.until, given.timeout) else 1
    except WaitTimeout as error:
        say(str(error))
        code = TIMEOUT_CODE
    show(json.dumps(work.shown(record)) if given.json else headline(record.status))
    return code


def add_note(command: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command that writes a note to a run."""
    work.add_note(command)
    command.set_defaults(action=lambda given: _print(work.note(recorded_run(given.run), given)))


def add_tag(command: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command that gives a run tags."""
    work.add_tags(command)
    command.set_defaults(action=lambda given: _print(work.tag(recorded_run(given.run), given)))


def add_rerun(command: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command that repeats a run."""
    work.add_rerun(command)
    what = "Show all that the tasks print, with the framework's notices and every update of a bar."
    command.add_argument("--raw", action="store_true", help=what)
    command.set_defaults(action=_rerun)


def _rerun(given: argparse.Namespace) -> int:
    again = Rerun(recorded_run(given.run), given.workers, given.params)
    for line in again.unlike():
        say(line)
    options = again.declaration()
    with listening(), Cluster.declare(say, **{**options, "warm": repeats(options)}) as cluster:
        return follow(again.launch(cluster), raw=given.raw)


def add_gc(command: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command that removes old runs."""
    work.add_cleaning(command)
    command.set_defaults(action=_gc)


def _gc(given: argparse.Namespace) -> int:
    for line in work.clean(runs(), given):
        show(line)
    return 0


def add_export(command: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command that writes recorded runs for other tools."""
    what = "Event files for TensorBoard, runs of MLflow, metrics as CSV, or curves as a picture."
    form = f"{{{','.join(exports.FORMATS)}}}"
    command.add_argument("kind", choices=exports.FORMATS, metavar=form, help=what)
    exports.add_export(command)
    command.add_argument("--overwrite", action="store_true", help="Replace what is there.")
    command.set_defaults(action=_export)


def _export(given: argparse.Namespace) -> int:
    for line in exports.export_runs(runs(), given):
        show(line)
    return 0


def _print(line: str) -> int:
    show(line)
    return 0
