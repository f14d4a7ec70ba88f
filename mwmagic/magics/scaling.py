"""``%mw_scale``: a program with other numbers of workers, to say whether more of them help."""

from __future__ import annotations

from typing import TYPE_CHECKING

from IPython.display import display

from mwmagic.client import scaling as work
from mwmagic.client.arguments import reader
from mwmagic.client.planning import find
from mwmagic.client.sweep import check_idle
from mwmagic.dashboard.scaling import NotebookScaling
from mwmagic.errors import WaitInterrupted
from mwmagic.experiments.scaling import Scaling
from mwmagic.model.option import read_count
from mwmagic.words.sweep import resume_words

from .magic import Parser, magic
from .sweep import add_program, program_of

if TYPE_CHECKING:
    from argparse import Namespace

    from .session import Session

__all__ = ["mw_scale"]


def _scale() -> Parser:
    parser = Parser(
        "%mw_scale",
        "Run a program with so many workers in turn, each on a cluster of its own like the "
        "notebook's, and say whether more workers help. An interrupted study continues with "
        "--resume.",
    )
    add = parser.add_argument
    what = "The numbers of workers, such as 1 2 4."
    add("workers", nargs="*", type=reader(read_count), metavar="N", help=what)
    add_program(parser)
    work.add_scale(parser)
    return parser


@magic(_scale(), shows=True)
def mw_scale(session: Session, given: Namespace, _cell: str) -> Scaling:
    """Measure sizes, and show what was found."""
    work.check_given(given, given.workers)
    if given.show is not None:
        found = find(Scaling, session.directory, given.show or None)
        return _shown(session, found, given.mode or "")
    cluster = session.cluster()
    check_idle(cluster)
    if given.resume is None:
        program = program_of(session, given)
        options = cluster.options.as_json()
        found = work.new_scaling(
            session.directory,
            workers=given.workers,
            options=options,
            **program,
            **work.planned(given),
        )
    else:
        found = find(Scaling, session.directory, given.resume or None)
    try:
        work.conduct(found, on_message=session.say, on_change=session.say)
    except KeyboardInterrupt:
        _shown(session, found)
        text = resume_words(found, "%mw_scale")
        raise WaitInterrupted(text) from None
    return _shown(session, found)


def _shown(session: Session, found: Scaling, mode: str = "") -> Scaling:
    """Show a study as the notebook keeps it."""
    shown = NotebookScaling(found.study(mode))
    if getattr(session.shell, "kernel", None) is None:
        session.say(repr(shown))
    elif not session.quiet:
        display(shown)
    return found
