"""``%%mw_live`` and ``%mw_reset``: cells in interpreters that live on."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from IPython.core.error import StdinNotImplementedError
from IPython.display import display

from mwmagic.client.arguments import read_tasks, reader
from mwmagic.client.live.cell import DeferredInterrupt
from mwmagic.client.live.output import CellOutput, Sink
from mwmagic.errors import BadArguments, NoRun, WaitInterrupted
from mwmagic.model.cluster import TYPES, Task, find_task
from mwmagic.model.option import read_count
from mwmagic.model.values import counted
from mwmagic.words.live import (
    debug_words,
    flawless_words,
    interrupted_words,
    none_words,
    unanswerable_words,
    unkept_words,
    withdrawn_words,
)

from .body import check_plain, parted
from .magic import Parser, magic
from .worker import cell_name

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping, Sequence

    from mwmagic.client.cluster import Cluster
    from mwmagic.client.live.session import Live
    from mwmagic.model.cluster import TaskName
    from mwmagic.model.live import Answer

    from .session import Session

__all__ = ["add_tasks", "chosen", "mw_debug", "mw_live", "mw_reset", "opened"]


def add_tasks(parser: Parser) -> None:
    """Add the options that choose tasks; see `chosen`."""
    add = parser.add_argument
    add("--index", type=reader(read_count), metavar="I", help="Only on the task with this index.")
    add("--type", choices=list(TYPES), help="Only on tasks of this type.")
    add("--tasks", type=reader(read_tasks), metavar="A,B", help="Only on these tasks.")


def _live() -> Parser:
    parser = Parser(
        "%%mw_live",
        "Run the cell in interpreters that live on, one for each task, and wait for all of them. "
        "The first such cell starts them.",
    )
    add_tasks(parser)
    return parser


@magic(_live(), shows=True)
def mw_live(session: Session, given: Namespace, cell: str) -> Mapping[str, Any]:
    """Run the cell on living interpreters; return each task's answer."""
    code, name = parted(cell)
    check_plain(code)
    cluster = session.cluster()
    tasks = chosen(given, cluster.tasks)
    with session.showing(cluster):
        live = _living(session, cluster)
    answers: Mapping[str, Answer] = {}
    if code.strip() or not name:
        answers = _run(session, live, code, tasks, cell_name(session) or "<cell>")
    if name:
        session.say(live.describe(name, tasks))
    return answers


def _run(
    session: Session,
    live: Live,
    source: str,
    tasks: Sequence[TaskName] | None,
    name: str,
    *,
    alone: bool = False,
) -> Mapping[str, Answer]:
    """Run a cell, and show all that it shows."""
    with DeferredInterrupt() as interrupt:
        cell = live.begin(source, tasks, name=name, alone=alone)
        output = CellOutput(live, cell, name, _sink(session))
        try:
            with interrupt.gap:
                output.follow()
        except KeyboardInterrupt:
            with suppress(KeyboardInterrupt), interrupt.gap:  # a second one ends the wait
                live.interrupt(cell)
            output.interrupted()
            if cell.why == "withdrawn":
                raise WaitInterrupted(withdrawn_words(reset=False)) from None
            left = [task for task in cell.tasks if task not in cell.answers]
            raise WaitInterrupted(interrupted_words(left)) from None
        except StdinNotImplementedError:
            with interrupt.gap:
                live.interrupt(cell)
            raise BadArguments(unanswerable_words()) from None
    live.check(cell, name)
    output.values()
    return cell.ranked()


def _sink(session: Session) -> Sink:
    def show(value: Mapping[str, Any]) -> None:
        if not session.quiet:
            display(value, raw=True)

    return Sink(session.say, show)


def _living(session: Session, cluster: Cluster) -> Live:
    """Return the session of the cluster; say so where it begins."""
    latest = cluster.latest
    live = cluster.live()
    if latest is None or live.process.number != latest.number:
        session.say(
            f"run {live.process.number}: live interpreters on {counted(len(cluster.tasks), 'task')}"
        )
    if latest is not None and latest.over and not latest.status().live:
        session.say(unkept_words(latest.number))
    return live


def chosen(given: Namespace, known: Sequence[Task]) -> list[str] | None:
    """Return the tasks that the options name; None for all."""
    if given.tasks is not None:
        if given.index is not None or given.type is not None:
            raise BadArguments("--tasks names the tasks, so leave out --index and --type")
        return list(given.tasks)
    if given.index is not None:
        return [str(Task(given.type or "worker", given.index))]
    if given.type is None:
        return None
    named = [str(task) for task in known if task.type == given.type]
    return named or [given.type]  # which does not exist, and is refused with those that do


def opened(session: Session) -> Live:
    """Return the session of the cluster."""
    run = session.latest()
    if run.over or not (run.kept or run.status().live):
        raise NoRun(none_words(run.status()))
    return session.cluster().live()


_DEBUG = Parser(
    "%mw_debug",
    "Go to the line that raised last on a task, in Python's debugger: of a live cell, or of a "
    "program whose processes are kept. Without a task, show which raised what if several did.",
)
_DEBUG.add_argument("task", nargs="?", help="The task (default: the one that raised).")


@magic(_DEBUG, shows=True)
def mw_debug(session: Session, given: Namespace, _cell: str) -> None:
    """Debug what a task raised last."""
    live = opened(session)
    raised = live.raised()
    if given.task is None and len(raised) > 1:
        session.say("\n".join(debug_words(raised)))
        return
    if not raised:
        raise NoRun(flawless_words())
    task = str(find_task(given.task, live.cluster.tasks)) if given.task else next(iter(raised))
    if task not in raised:
        raise BadArguments("\n".join([flawless_words(task), *debug_words(raised)]))
    _run(session, live, "__import__('pdb').pm()", [task], "%mw_debug", alone=True)


@magic(Parser("%mw_reset", "Give live cells fresh interpreters; all their variables are lost."))
def mw_reset(session: Session, _given: Namespace, _cell: str) -> None:
    """Restart the interpreters of live cells."""
    opened(session).reset()
    session.say(f"fresh interpreters on {counted(len(session.cluster().tasks), 'task')}")
