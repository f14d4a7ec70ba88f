"""Completion of the magics' arguments, on IPython 9 and on 7.34."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from IPython.core import completer

from .extension import MAGICS

if TYPE_CHECKING:
    from collections.abc import Callable

    from IPython.core.interactiveshell import InteractiveShell

    from .parser import Parser
    from .session import Session

__all__ = ["install"]

_PARSERS = {one.name: one.parser for one in MAGICS}

_LINE = re.compile(r"^\s*(?:[\w.]+\s*=\s*)?%{1,2}(?P<magic>mw_\w+)\s+(?P<rest>.*)$")
"""A line with a magic, also in the form ``x = %mw_cluster``."""

_HOOKED = re.compile(r".*%{1,2}mw_\w+")
"""The text that IPython 7 looks its hooks up by: a line's first word, or all of it."""


_TASK = "task"
"""The arguments of this name take one of the run's tasks."""

_RUN = "run"
"""The arguments of this name take the number of a recorded run."""

_RUN_FLAG = "--run"
"""The magics with this option act on recorded runs, also where there is no cluster."""


def candidates(line: str, session: Session) -> tuple[list[str], str]:
    """Return what may follow in the line of one of our magics.

    Parameters
    ----------
    line : str
        The text from the start of the line to the cursor.
    session : Session
        What there is to name in it.

    Returns
    -------
    words : list of str
        Empty where the line is not one of our magics, or takes anything there.
    token : str
        The part of a word before the cursor, which each of them completes.
    """
    match = _LINE.match(line)
    parser = _PARSERS.get(match["magic"]) if match else None
    if match is None or parser is None:
        return [], ""
    words = match["rest"].split()
    token = "" if match["rest"][-1:].isspace() else (words.pop() if words else "")
    offered = parser.flags() if token.startswith("-") else _values(parser, words, session)
    return [word for word in offered if word.startswith(token)], token


def _values(parser: Parser, words: list[str], session: Session) -> list[str]:
    """Return the values of the argument that comes next, where they are known."""
    action = parser.expected(words)
    if action is not None and action.dest == _TASK:
        return session.tasks(recorded=_RUN_FLAG in parser.flags())
    if action is not None and action.dest == _RUN:
        return session.numbers()
    return [str(choice) for choice in (action and action.choices) or ()]


def install(shell: InteractiveShell, session: Session) -> Callable[[], None]:
    """Teach the shell to complete our arguments; return a function that undoes it."""
    if hasattr(completer, "context_matcher"):
        return _install_matcher(shell.Completer.custom_matchers, session)
    return _install_hook(shell.strdispatchers["complete_command"], session)


def _install_matcher(matchers: list[Any], session: Session) -> Callable[[], None]:
    @completer.context_matcher()
    def mwmagic_matcher(context: Any) -> dict[str, Any]:  # noqa: ANN401 - IPython is not typed
        first = context.cursor_line == 0 or not context.full_text.lstrip().startswith("%%")
        line = context.line_with_cursor[: context.cursor_position] if first else ""
        words, token = candidates(line, session)
        completions = [completer.SimpleCompletion(word, type="param") for word in words]
        # IPython's own token ends at the colon of a task's name.
        fragment = token if words else context.token
        return {
            "completions": completions,
            "suppress": bool(completions),
            "matched_fragment": fragment,
        }

    matchers.append(mwmagic_matcher)
    return lambda: matchers.remove(mwmagic_matcher)


def _install_hook(hooks: Any, session: Session) -> Callable[[], None]:  # noqa: ANN401 - IPython is not typed
    def complete(event: Any) -> list[str]:  # noqa: ANN401 - IPython is not typed
        words, token = candidates(event.text_until_cursor, session)
        # IPython's own token, which is replaced, begins after the colon of a task's name.
        done = len(token) - len(event.symbol)
        return [word[done:] for word in words]

    hooks.add_re(_HOOKED, complete, 50)
    return lambda: hooks.regexs.pop(_HOOKED, None) and None
