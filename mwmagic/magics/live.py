"""``%%mw_live`` and ``%mw_reset``: cells in interpreters that live on."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from IPython.core.error import StdinNotImplementedError
from IPython.display import display

from mwmagic.client.arguments import reader
from mwmagic.client.live import LISTEN_SECONDS
from mwmagic.errors import BadArguments, NoRun, WaitInterrupted
from mwmagic.model.cluster import TYPES, Task, find_task
from mwmagic.model.live import What
from mwmagic.model.option import read_count
from mwmagic.model.status import Question
from mwmagic.words.live import (
    debug_words,
    flawless_words,
    freed_words,
    interrupted_words,
    none_words,
    raised_words,
    ranks_words,
    recovered_words,
    unanswerable_words,
    unkept_words,
    waits_words,
)

from .asking import Asking
from .body import check_plain
from .magic import magic
from .parser import Parser
from .worker import cell_name

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Mapping, Sequence

    from mwmagic.client.cluster import Cluster
    from mwmagic.client.live import Live, LiveCell
    from mwmagic.model.cluster import TaskName
    from mwmagic.model.live import Answer, Raised

    from .session import Session

__all__ = ["add_tasks", "chosen", "mw_debug", "mw_live", "mw_reset", "opened"]


_SILENT = (What.BEGUN, What.ANSWER)
"""What is told of a cell that says nothing of its output; looking at each log takes time."""

NOTICE_SECONDS = 0.25
"""How long an exception waits for the same of other tasks before it is told."""


CONSEQUENCES: dict[What | None, Callable[[Mapping[str, Any]], str]] = {
    What.WAITS: waits_words,
    What.FREED: freed_words,
    What.RECOVERED: recovered_words,
}
"""What is told of the others after an exception, and so after that."""


class Notices:
    """The exceptions that are told while other tasks still run; those of the end are not."""

    def __init__(self) -> None:
        self._waiting: dict[Raised, tuple[float, list[str]]] = {}

    def hear(self, answer: Answer, now: float) -> None:
        """Take a task's answer."""
        if answer.raised is not None and not answer.freed:
            self._waiting.setdefault(answer.raised, (now, []))[1].append(answer.task)

    def due(self, now: float | None) -> list[tuple[Raised, list[str]]]:
        """Return what is told now, with the tasks that raised it; without a time, all."""
        due = [
            (raised, tasks)
            for raised, (since, tasks) in self._waiting.items()
            if now is None or now - since >= NOTICE_SECONDS
        ]
        for raised, _ in due:
            del self._waiting[raised]
        return due


def _read_tasks(text: str) -> tuple[str, ...]:
    """Return the names in a list such as ``0,2`` or ``worker:0,ps:1``."""
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        Task.parse(name)
    return names


def add_tasks(parser: Parser) -> None:
    """Add the options that choose tasks; see `chosen`."""
    add = parser.add_argument
    add("--index", type=reader(read_count), metavar="I", help="Only on the task with this index.")
    add("--type", choices=list(TYPES), help="Only on tasks of this type.")
    add("--tasks", type=reader(_read_tasks), metavar="A,B", help="Only on these tasks.")


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
    check_plain(cell)
    cluster = session.cluster()
    tasks = chosen(given, cluster.tasks)
    with session.showing(cluster):
        live = _living(session, cluster)
    name = cell_name(session) or "<cell>"
    answers = _run(session, live, cell, tasks, name)
    _values(session, answers)
    return answers


def _run(
    session: Session, live: Live, source: str, tasks: Sequence[TaskName] | None, name: str
) -> Mapping[str, Answer]:
    """Run a cell, and show all but its values."""
    cell = live.begin(source, tasks, name=name)
    try:
        _follow(session, live, cell, name)
    except KeyboardInterrupt:
        live.interrupt(cell)
        _print(session, cell, len(live.cluster.tasks))
        if cell.recovered is not None:
            session.say(f"─ {recovered_words(cell.recovered)}")
        left = [task for task in cell.tasks if task not in cell.answers]
        raise WaitInterrupted(interrupted_words(left)) from None
    except StdinNotImplementedError:
        live.interrupt(cell)
        raise BadArguments(unanswerable_words()) from None
    live.check(cell, name)
    return cell.ranked()


def _living(session: Session, cluster: Cluster) -> Live:
    """Return the session of the cluster; say so where it begins."""
    latest = cluster.latest
    live = cluster.live()
    if latest is None or live.process.number != latest.number:
        session.say(f"run {live.process.number}: live interpreters on {len(cluster.tasks)} tasks")
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


def _follow(session: Session, live: Live, cell: LiveCell, name: str) -> None:
    """Show what the tasks print, and what happens to the cell, until it is over."""
    size = len(live.cluster.tasks)
    notices = Notices()
    asks: dict[str, Question] = {}
    asking = Asking(session.say, live.reply)
    printed = 0.0
    for news in live.follow(cell):
        what, said = news or (None, {})
        if what not in _SILENT or time.monotonic() > printed + LISTEN_SECONDS:
            _print(session, cell, size)
            printed = time.monotonic()
        if what is What.SHOW:
            _show(session, said, size)
        if what is What.ASK:
            asks[said["task"]] = Question(said["prompt"], debugger=said["debugger"])
        if what is What.ANSWER:
            asks.pop(said["task"], None)
            notices.hear(cell.answers[said["task"]], time.monotonic())
        for raised, tasks in notices.due(None if what in CONSEQUENCES else time.monotonic()):
            session.say(f"─ {raised_words(tasks, raised, name)}")
        if what in CONSEQUENCES:
            session.say(f"─ {CONSEQUENCES[what](said)}")
        if asks and not cell.over:
            _print(session, cell, size, every=True)
            asks.pop(asking.ask(asks) or "", None)
    _print(session, cell, size)
    _traces(session, list(cell.ranked().values()))


def _show(session: Session, said: Mapping[str, Any], size: int) -> None:
    """Display what a task displays."""
    if session.quiet or not isinstance(said["value"], dict):
        return
    if size > 1:
        session.say(f"[{ranks_words([said['task']])}]")
    display(said["value"], raw=True)


def _print(session: Session, cell: LiveCell, size: int, *, every: bool = False) -> None:
    for tasks, text in cell.lines(every=every):
        session.say(text if size == 1 else f"[{ranks_words(tasks)}] {text}")


def _traces(session: Session, answers: Sequence[Answer]) -> None:
    """Show each traceback once, with the tasks that have it."""
    groups: dict[str, list[str]] = {}
    for one in answers:
        if one.raised is not None and not one.raised.left and not one.freed:
            groups.setdefault(one.raised.trace, []).append(one.task)
    for trace, tasks in groups.items():
        session.say(f"[{ranks_words(tasks)}] {trace.rstrip()}")


def _values(session: Session, answers: Mapping[str, Answer]) -> None:
    """Display the values of the last expression, equal ones once."""
    groups: list[tuple[Mapping[str, Any], list[str]]] = []
    for task, answer in answers.items():
        same = next((tasks for value, tasks in groups if value == answer.value), None)
        if same is not None:
            same.append(task)
        else:
            groups.append((answer.value, [task]))
    for value, tasks in groups:
        if value and not session.quiet:
            if len(groups) > 1:
                session.say(f"[{ranks_words(tasks)}]")
            display(value, raw=True)


def opened(session: Session) -> Live:
    """Return the session of the cluster.

    Raises
    ------
    NoRun
        There is none.
    """
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
    _run(session, live, "__import__('pdb').pm()", [task], "%mw_debug")


@magic(Parser("%mw_reset", "Give live cells fresh interpreters; all their variables are lost."))
def mw_reset(session: Session, _given: Namespace, _cell: str) -> None:
    """Restart the interpreters of live cells."""
    opened(session).reset()
    session.say(f"fresh interpreters on {len(session.cluster().tasks)} tasks")
