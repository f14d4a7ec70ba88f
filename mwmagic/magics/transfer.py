"""Values to and from live interpreters, and files: ``%mw_push``, ``%mw_pull``, ``%mw_fetch``."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from mwmagic.errors import BadArguments
from mwmagic.words.host import fetch_words

from .live import add_tasks, chosen, opened
from .magic import Parser, magic

if TYPE_CHECKING:
    from argparse import Namespace
    from pathlib import Path

    from mwmagic.model.machine import Fetch

    from .session import Session

__all__ = ["mw_fetch", "mw_pull", "mw_push"]


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
    add_tasks(parser)
    return parser


@magic(_push(), shows=True)
def mw_push(session: Session, given: Namespace, _cell: str) -> None:
    """Set variables on the tasks."""
    live = opened(session)
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
        "Bring a value of a live interpreter, as an array, a value of pandas, or plain data; with "
        "--tasks or --type those of several tasks, by task. Without an option it is that of the "
        "first task.",
        typed=lambda words: [_bare(" ".join(words))] if words else [],
    )
    add = parser.add_argument
    add("expression", metavar="EXPRESSION", help="A variable, or such as history.history.")
    add_tasks(parser)
    return parser


@magic(_pull())
def mw_pull(session: Session, given: Namespace, _cell: str) -> Any:  # noqa: ANN401 - the user's
    """Return the value; a variable's is stored under its name."""
    live = opened(session)
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
