"""A run's state and output: ``%mw_status``, ``%mw_stacks``, ``%mw_profile``, ``%mw_logs``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mwmagic.client.profiling import add_profile, profile, profile_lines
from mwmagic.client.reading import add_log_options, pieces, recorded
from mwmagic.dashboard.static import page, text
from mwmagic.errors import BadArguments

from .magic import Parser, magic

if TYPE_CHECKING:
    from argparse import Namespace

    from mwmagic.client.run import Run, Stacks
    from mwmagic.experiments.profile import Profile
    from mwmagic.model.status import RunStatus

    from .session import Session

__all__ = ["mw_logs", "mw_profile", "mw_stacks", "mw_status"]


@magic(Parser("%mw_status", "Show the run and each of its tasks."))
def mw_status(session: Session, _given: Namespace, _cell: str) -> StatusTable:
    """Show the run and its tasks."""
    run = session.run()
    return StatusTable(session.record().status if run is None else run.status())


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
        "Profile a running task with TensorFlow's or JAX's profiler, and say which part of the "
        "time is input and which collectives. Its program stays as it is; it must report steps.",
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
        return text(self.status)

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
    how = {"raw": given.raw, "ansi": given.ansi, "grep": given.grep, "tail": given.tail}
    shown: list[str] = []
    for lines in filter(None, pieces(run, given.task, **how)):
        texts = [line if given.task is not None else f"[{task}] {line}" for task, line in lines]
        session.say("\n".join(texts))
        shown += texts
    return shown
