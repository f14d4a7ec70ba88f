"""``%mw_export``: a script that repeats a run without mwmagic."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mwmagic.client.arguments import reader
from mwmagic.client.export import KINDS, export_record, has_values
from mwmagic.client.transcript import transcript
from mwmagic.model.option import read_count

from .file import OutputFile, add_overwrite
from .magic import magic
from .parser import Parser

if TYPE_CHECKING:
    from argparse import Namespace

    from mwmagic.client.run import Run
    from mwmagic.record import Record

    from .session import Session

__all__ = ["mw_export"]

PUBLIC_MODE = 0o755
PRIVATE_MODE = 0o700

PRIVATE_NOTE = ", which only you can read: it holds the values of --env"
"""What is added where a script is private."""

LIVE = "live"
"""The kind of script that a live session is written as; it needs mwmagic."""

_SUFFIXES = {"script": ".sh", "slurm": ".sbatch", LIVE: ".py"}


def _export() -> Parser:
    parser = Parser(
        "%mw_export",
        "Write a script that repeats a run without mwmagic, for a shell or for Slurm; or the cells "
        "of a live session as one program.",
    )
    every = (*KINDS, LIVE)
    what = (
        "A shell script for one machine, a batch script for Slurm's sbatch, or a live session as a "
        "program for `mwmagic run`."
    )
    parser.add_argument("kind", choices=every, metavar=f"{{{','.join(every)}}}", help=what)
    what = "The number of the run, as `%%mw_runs` lists them (default: the latest)."
    parser.add_argument("--run", type=reader(read_count), metavar="NUMBER", help=what)
    what = "The file to write (default: main.sh, main.sbatch or live.py)."
    parser.add_argument("--file", metavar="FILE", help=what)
    add_overwrite(parser)
    return parser


@magic(_export(), shows=True)
def mw_export(session: Session, given: Namespace, _cell: str) -> Path:
    """Write a script that repeats a run."""
    run = session.run(given.run)
    record = session.record(given.run) if run is None else run.record
    text = _text(given.kind, run, record)
    name = Path(record.status.script).with_suffix(_SUFFIXES[given.kind]).name
    file = OutputFile(given.file or name, overwrite=given.overwrite)
    private = given.kind != LIVE and (has_values(record) or bool(run and run.cluster.options.env))
    modes = (None, None) if given.kind == LIVE else (PUBLIC_MODE, PRIVATE_MODE)
    file.write(text, modes[private])
    session.say(f"wrote {file.name}" + (PRIVATE_NOTE if private else ""))
    return Path(file.name)


def _text(kind: str, run: Run | None, record: Record) -> str:
    """Return the script of a run, which may be one of an earlier kernel."""
    if kind == LIVE:
        return transcript(record)
    return export_record(kind, record) if run is None else run.export(kind)
