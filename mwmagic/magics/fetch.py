"""``%mw_fetch``: a file from the machine that a task is on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mwmagic.words.host import fetch_words

from .magic import magic
from .parser import Parser

if TYPE_CHECKING:
    from argparse import Namespace
    from pathlib import Path

    from mwmagic.model.machine import Fetch

    from .session import Session

__all__ = ["mw_fetch"]


def _fetch() -> Parser:
    parser = Parser(
        "%mw_fetch",
        "Fetch a file or a directory from the machine that a task is on, such as a saved model.",
    )
    add = parser.add_argument
    add("task", help="The task, such as 0 or worker:0.")
    what = "Its path there; a relative one is below the directory that the task runs in."
    add("path", metavar="PATH", help=what)
    what = "Where to put it, or the directory to put it into (default: the same place here)."
    add("--to", metavar="PATH", help=what)
    add("--overwrite", action="store_true", help="Replace what is there.")
    return parser


@magic(_fetch(), shows=True)
def mw_fetch(session: Session, given: Namespace, _cell: str) -> Path:
    """Fetch a file or a directory from the machine that a task is on."""
    last: list[Fetch] = []
    cluster = session.cluster()
    path = cluster.fetch(
        given.task, given.path, given.to, overwrite=given.overwrite, told=last.append
    )
    session.say(fetch_words(last[-1]))
    return path
