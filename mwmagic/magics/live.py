"""Cells in interpreters that live on, and what goes to them and comes back.

``%%mw_live``, ``%mw_debug``, ``%mw_reset``, ``%mw_push``, ``%mw_pull`` and ``%mw_fetch``.
"""

from __future__ import annotations

import ast
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from IPython.core.error import StdinNotImplementedError
from IPython.display import display

from mwmagic.client.arguments import read_tasks, reader
from mwmagic.client.live.cell import CellOutput, DeferredInterrupt, Sink
from mwmagic.errors import BadArguments, NoRun, WaitInterrupted
from mwmagic.model.cluster import TYPES, Task, find_task
from mwmagic.model.option import read_count
from mwmagic.model.values import counted
from mwmagic.words.host import fetch_words
from mwmagic.words.live import (
    debug_words,
    flawless_words,
    interrupted_words,
    none_words,
    unanswerable_words,
    unkept_words,
    withdrawn_words,
)

from .magic import Parser, magic
from .source import check_compiles, check_plain, parted
from .worker import cell_name

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from mwmagic.client.cluster import Cluster
    from mwmagic.client.live.session import Live
    from mwmagic.client.run import Run
    from mwmagic.model.cluster import TaskName
    from mwmagic.model.live import Answer
    from mwmagic.model.machine import Fetch

    from .session import Session

__all__ = ["chosen", "mw_debug", "mw_fetch", "mw_live", "mw_pull", "mw_push", "mw_reset"]


def _add_tasks(parser: Parser) -> None:
    """Add the options that choose tasks; see `chosen`."""
    add = parser.add_argument
    add("--index", type=reader(read_count), metavar="I", help="Only on the task with this index.")
    add("--type", choices=list(TYPES), help="Only on tasks of this type.")
    add("--tasks", type=reader(read_tasks), metavar="A,B", help="Only on these tasks.")


def _live() -> Parser:
    parser = Parser(
        "%%mw_live",
        "Run the cell in interpreters that stay, one for each task, and wait for all of them. "
        "The first such cell starts them.",
    )
    _add_tasks(parser)
    parser.omitted = ("--index", "--tasks")
    return parser


@magic(_live(), shows=True)
def mw_live(session: Session, given: Namespace, cell: str) -> Mapping[str, Any]:
    """Run the cell on living interpreters; return each task's answer."""
    code, name = parted(cell)
    check_plain(code)
    cluster = session.cluster()
    tasks = chosen(given, cluster.tasks)
    if not _is_open(cluster.latest):
        check_compiles(code)
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


def _opened(session: Session) -> Live:
    """Return the session of the cluster."""
    run = session.cluster().latest
    if run is None:
        raise NoRun(none_words(None))
    if not _is_open(run):
        raise NoRun(none_words(run.status()))
    return session.cluster().live()


def _is_open(run: Run | None) -> bool:
    """Return whether a run has living interpreters."""
    return run is not None and not run.over and (run.kept or run.status().live)


_DEBUG = Parser(
    "%mw_debug",
    "Open Python's debugger at the line that last raised an exception on a task: in a live cell, "
    "or in a program whose processes are kept. If several tasks raised one, name the task; without "
    "it, they are listed.",
)
_DEBUG.add_argument("task", nargs="?", help="The task (default: the one that raised).")


@magic(_DEBUG, shows=True)
def mw_debug(session: Session, given: Namespace, _cell: str) -> None:
    """Debug what a task raised last."""
    live = _opened(session)
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
    _opened(session).reset()
    session.say(f"fresh interpreters on {counted(len(session.cluster().tasks), 'task')}")


def _is_expression(text: str) -> bool:
    try:
        compile(text, "<line>", "eval")
    except (SyntaxError, ValueError):  # the second of a null byte
        return False
    return True


def _bare(text: str) -> str:
    """Return an expression without quotes around the whole, as a shell would want them."""
    try:
        held = ast.literal_eval(text)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return text
    return held if isinstance(held, str) else text


def _settings(words: list[str]) -> list[str]:
    """Return variables, each with the longest expression that follows its equals sign."""
    found, words = [], [_bare(word) for word in words]
    while words:
        texts = [" ".join(words[: at + 1]) for at in range(len(words))]
        whole = [at for at, text in enumerate(texts) if _is_setting(text)]
        at = max(whole, default=0)
        found.append(texts[at])
        del words[: at + 1]
    return found


def _is_setting(text: str) -> bool:
    name, _, expression = text.partition("=")
    return name.strip().isidentifier() and _is_expression(expression.strip())


def _push() -> Parser:
    what = "Set variables in live interpreters to values of the notebook."
    parser = Parser("%mw_push", what, typed=_settings)
    what = "A variable, or one with an expression such as lr=0.1 or sizes=[1, 2]."
    parser.add_argument("names", nargs="+", metavar="NAME", help=what)
    _add_tasks(parser)
    return parser


@magic(_push(), shows=True)
def mw_push(session: Session, given: Namespace, _cell: str) -> None:
    """Set variables on the tasks."""
    live = _opened(session)
    values = dict(_value(session, text) for text in given.names)
    live.push(chosen(given, live.cluster.tasks), **values)


def _value(session: Session, text: str) -> tuple[str, Any]:
    """Return a variable's name and its value; the text is ``name`` or ``name=expression``."""
    name, equals, expression = map(str.strip, text.partition("="))
    if not name.isidentifier():
        raise BadArguments(f"{name!r} is not a variable's name; write NAME or NAME=EXPRESSION")
    try:
        return name, eval(expression if equals else name, session.shell.user_ns)  # noqa: S307 - the user's own
    except Exception as error:  # noqa: BLE001 - the user's own expression may raise anything
        raise BadArguments(f"{text}: {type(error).__name__}: {error}") from None


def _pull() -> Parser:
    parser = Parser(
        "%mw_pull",
        "Bring a value from a live interpreter to the notebook: an array, a pandas object, or "
        "plain data. It comes from the first task, or from the one that --index names; --tasks and "
        "--type bring a dict with the value of each task.",
        typed=lambda words: [_bare(" ".join(words))] if words else [],
    )
    add = parser.add_argument
    what = "A variable, or an expression such as history.history."
    add("expression", metavar="EXPRESSION", help=what)
    _add_tasks(parser)
    return parser


@magic(_pull())
def mw_pull(session: Session, given: Namespace, _cell: str) -> Any:  # noqa: ANN401 - the user's
    """Return the value; a variable's is stored under its name."""
    live = _opened(session)
    if not _is_expression(given.expression):
        raise BadArguments(f"`{given.expression}` is not a Python expression")
    tasks = chosen(given, live.cluster.tasks)
    if given.tasks is not None or (given.type is not None and given.index is None):
        value = live.pull_all(given.expression, tasks=tasks)
    else:
        value = live.pull(given.expression, task=tasks[0] if tasks else live.cluster.tasks[0])
    if given.expression.isidentifier() and not given.out:
        session.shell.user_ns[given.expression] = value
    return value


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
        given.task, given.path, given.to, overwrite=given.overwrite, on_message=last.append
    )
    session.say(fetch_words(last[-1]))
    return path
