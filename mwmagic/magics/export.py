"""``%mw_export``: a script that repeats a run without mwmagic."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mwmagic.client.export import KINDS, export_record, has_values

from .file import OutputFile, add_overwrite
from .magic import magic
from .parser import Parser

if TYPE_CHECKING:
    from argparse import Namespace

    from .session import Session

__all__ = ["mw_export"]

PUBLIC_MODE = 0o755
PRIVATE_MODE = 0o700

PRIVATE_NOTE = ", which only you can read: it holds the values of --env"
"""What is added where a script is private."""

_SUFFIXES = {"script": ".sh", "slurm": ".sbatch"}


def _export() -> Parser:
    parser = Parser(
        "%mw_export",
        "Write a script that repeats the latest run without mwmagic, for a shell or for Slurm.",
    )
    kinds = f"{{{','.join(KINDS)}}}"
    what = "A shell script for one machine, or a batch script for Slurm's sbatch."
    parser.add_argument("kind", choices=KINDS, metavar=kinds, help=what)
    what = "The file to write (default: main.sh or main.sbatch)."
    parser.add_argument("--file", metavar="FILE", help=what)
    add_overwrite(parser)
    return parser


@magic(_export(), shows=True)
def mw_export(session: Session, given: Namespace, _cell: str) -> Path:
    """Write a script that repeats the latest run without mwmagic."""
    run = session.run()
    record = session.record() if run is None else run.record
    text = export_record(given.kind, record) if run is None else run.export(given.kind)
    name = Path(record.status.script).with_suffix(_SUFFIXES[given.kind]).name
    file = OutputFile(given.file or name, overwrite=given.overwrite)
    private = has_values(record) or bool(run and run.cluster.options.env)
    file.write(text, PRIVATE_MODE if private else PUBLIC_MODE)
    session.say(f"wrote {file.name}" + (PRIVATE_NOTE if private else ""))
    return Path(file.name)
