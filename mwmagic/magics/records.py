"""Runs: their state and output, a table of them, one or several shown, notes, tags and exports."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mwmagic.client import records as work
from mwmagic.client.arguments import (
    add_compare_options,
    add_table_options,
    compared,
    reader,
    table_runs,
)
from mwmagic.client.export import KINDS, export_record, has_values, transcript
from mwmagic.client.profiling import add_profile, profile, profile_lines
from mwmagic.client.reading import add_log_options, chosen_view, pieces, recorded
from mwmagic.dashboard.exports import FORMATS, add_export, check_options, export_runs
from mwmagic.dashboard.runs import NotebookComparison, NotebookTable
from mwmagic.dashboard.static import page, text
from mwmagic.errors import BadArguments, FileTrouble
from mwmagic.model.option import read_count
from mwmagic.record import runs
from mwmagic.record.reader import Code
from mwmagic.words.file import exists_words

from .magic import Parser, magic
from .source import OutputFile, add_overwrite

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping

    from mwmagic.client.profiling import Profile
    from mwmagic.client.run import Run, Stacks
    from mwmagic.model.status import RunStatus
    from mwmagic.record import Record

    from .session import Session

__all__ = [
    "mw_compare",
    "mw_export",
    "mw_gc",
    "mw_logs",
    "mw_note",
    "mw_profile",
    "mw_runs",
    "mw_show",
    "mw_stacks",
    "mw_status",
    "mw_tag",
]

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
        if given.run is not None:
            session.say_owner(found)
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


@magic(Parser("%mw_status", "Show the run and each of its tasks."))
def mw_status(session: Session, _given: Namespace, _cell: str) -> StatusTable:
    """Show the run and its tasks."""
    record, run = session.record(), session.run()  # whose news are the latest by then
    return StatusTable(record.status if run is None else run.status())


_STACKS = Parser("%mw_stacks", "Show where each task is, stragglers first.")
_STACKS.add_argument("--full", action="store_true", help="Include every thread's stack.")


@magic(_STACKS, shows=True)
def mw_stacks(session: Session, given: Namespace, _cell: str) -> Stacks:
    """Show where each task is."""
    stacks = session.latest().stacks()
    session.say(stacks.full if given.full else str(stacks))
    return stacks


def _profile() -> Parser:
    parser = Parser(
        "%mw_profile",
        "Profile a running task with TensorFlow's or JAX's profiler, and say how much of "
        "the time goes to input and to collectives. The program needs no change, but must report "
        "steps.",
    )
    add_profile(parser)
    return parser


@magic(_profile(), shows=True)
def mw_profile(session: Session, given: Namespace, _cell: str) -> Profile:
    """Profile a task."""
    found = profile(session.latest().record, given.task, given.seconds, risk=given.risk)
    session.say("\n".join(profile_lines(found)))
    return found


class StatusTable:
    """A run's state at one moment."""

    def __init__(self, status: RunStatus) -> None:
        self.status = status

    def __repr__(self) -> str:
        return text(self.status, timed=True)

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
    shown: list[str] = []
    for lines in filter(None, pieces(run, given.task, **chosen_view(given))):
        texts = [line if given.task is not None else f"[{task}] {line}" for task, line in lines]
        session.say("\n".join(texts))
        shown += texts
    return shown


PUBLIC_MODE = 0o755
PRIVATE_MODE = 0o700

PRIVATE_NOTE = "; only you can read it, as it holds the values of --env"
"""What is added where a script is private."""

LIVE = "live"
"""The kind of script that a live session is written as; it needs mwmagic."""

_SUFFIXES = {"script": ".sh", "slurm": ".sbatch", LIVE: ".py"}


def _export() -> Parser:
    parser = Parser(
        "%mw_export",
        "Write a script that repeats a run without mwmagic, for a shell or for Slurm; the cells of "
        "a live session as one program; or recorded runs for other tools.",
    )
    every = (*KINDS, LIVE, *FORMATS)
    what = (
        "A shell script for one machine, a batch script for Slurm's sbatch, or a live session as a "
        "program for `mwmagic run`; event files for TensorBoard, runs of MLflow, metrics as CSV, "
        "or curves as a picture."
    )
    parser.add_argument("kind", choices=every, metavar=f"{{{','.join(every)}}}", help=what)
    add_export(parser)
    add_overwrite(parser)
    return parser


@magic(_export(), shows=True)
def mw_export(session: Session, given: Namespace, _cell: str) -> Path | None:
    """Write a script that repeats a run, or runs for other tools."""
    if given.kind not in FORMATS:
        return _script(session, given)
    for line in export_runs(runs(session.directory), given):
        session.say(line)
    return None


def _script(session: Session, given: Namespace) -> Path:
    """Write a script that repeats a run."""
    check_options(given)
    if len(given.runs) > 1:
        raise BadArguments(f"a script repeats one run: leave out {given.runs[1]}")
    record = session.record(given.runs[0] if given.runs else None)
    script = record.status.script or "main.py"  # the record is gone, as a line below says
    name = Path(script).with_suffix(_SUFFIXES[given.kind]).name
    file = OutputFile(given.file or name, overwrite=given.overwrite)
    if given.kind == LIVE:
        file.write(transcript(record))
        session.say(f"wrote {file.name}")
        return Path(file.name)
    path = Path(file.name)
    code, folder = Code.of(record), path.with_name(f"{path.stem}-run-{record.number}")
    text = export_record(given.kind, record, folder if code else None)
    private = has_values(record)
    if code is not None:
        _copy(code.copied(folder), overwrite=given.overwrite)
    file.write(text, PRIVATE_MODE if private else PUBLIC_MODE)
    beside = f", which runs the code in {folder}" if code else ""
    session.say(f"wrote {file.name}{beside}{PRIVATE_NOTE if private else ''}")
    return path


def _copy(files: Mapping[Path, bytes], *, overwrite: bool) -> None:
    """Write copies of the recorded code, unless that would replace others."""
    for path, data in files.items():
        if not overwrite and path.exists() and path.read_bytes() != data:
            raise FileTrouble(exists_words(path, "`--file` names another script", known=True))
    for path, data in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
