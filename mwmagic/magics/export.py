"""``%mw_export``: a script that repeats a run without mwmagic, or runs for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mwmagic.client.export import KINDS, Code, export_record, has_values
from mwmagic.client.live.transcript import transcript
from mwmagic.dashboard.exports import FORMATS, add_export, check_options, export_runs
from mwmagic.errors import BadArguments, FileTrouble
from mwmagic.record import runs
from mwmagic.words.file import exists_words

from .magic import Parser, magic
from .source import OutputFile, add_overwrite

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping

    from .session import Session

__all__ = ["mw_export"]

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
    script = record.status.script or "main.py"  # of a record that is gone, as is said below
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
