"""Completion of the magics' arguments and in live cells, on IPython 9 and on 7.34."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from IPython.core import completer

from .magic import NAMES, find

if TYPE_CHECKING:
    from collections.abc import Callable

    from IPython.core.interactiveshell import InteractiveShell

    from .magic import Parser
    from .session import Session

__all__ = ["install"]

_LINE = re.compile(r"^\s*(?:[\w.]+\s*=\s*)?(?P<magic>%{1,2}mw_\w+)\s+(?P<rest>.*)$")
"""A line with a magic, also in the form ``x = %mw_cluster``."""

_HOOKED = re.compile(r".*%{1,2}mw_\w+")
"""The text that IPython 7 looks its hooks up by: a line's first word, or all of it."""


_CELL = re.compile(r"\s*%%mw_live\b(?P<options>.*)\n")
"""The first line of a live cell."""

_NAMES = re.compile(r"(?<![\w.)\]'\"])[^\W\d][\w.]*$")
"""The names before the cursor, with dots between them, where no call or index comes before them."""

_TASK = "task"
"""The arguments of this name take one of the run's tasks."""

_RUNS = ("run", "runs")
"""The arguments of these names take the number of a recorded run, or several."""

_RUN_FLAG = "--run"
"""The magics with this option act on recorded runs, also where there is no cluster."""


def candidates(line: str, session: Callable[[], Session]) -> tuple[list[str], str]:
    """Return what may follow in the line of one of our magics."""
    match = _LINE.match(line)
    if match is None or match["magic"] not in NAMES:
        return [], ""
    parser = find(match["magic"]).parser
    words = match["rest"].split()
    token = "" if match["rest"][-1:].isspace() else (words.pop() if words else "")
    offered = parser.flags() if token.startswith("-") else _values(parser, words, session)
    return [word for word in offered if word.startswith(token)], token


def _values(parser: Parser, words: list[str], session: Callable[[], Session]) -> list[str]:
    """Return the values of the argument that comes next, where they are known."""
    action = parser.expected(words)
    if action is not None and action.dest == _TASK:
        return session().tasks(recorded=_RUN_FLAG in parser.flags())
    if action is not None and action.dest in _RUNS:
        return session().numbers()
    return [str(choice) for choice in (action and action.choices) or ()]


def live_candidates(cell: str, at: int, session: Callable[[], Session]) -> tuple[list[str], str]:
    """Return what completes a name in a live cell, from the variables of its tasks."""
    head, names = _CELL.match(cell), _NAMES.search(cell[:at])
    if head is None or names is None or at < head.end():
        return [], ""
    owner = names[0].rpartition(".")[0]
    try:
        from .live import chosen

        given, live = find("%%mw_live").parser.read(head["options"]), session().live()
        found = [] if live is None else live.complete(names[0], chosen(given, live.cluster.tasks))
    except Exception:  # noqa: BLE001 - a completion has no place for an error
        return [], ""
    return [f"{owner}.{one}" if owner else one for one in found], names[0]


def install(shell: InteractiveShell, session: Callable[[], Session]) -> Callable[[], None]:
    """Teach the shell to complete our arguments; return a function that undoes it."""
    if hasattr(completer, "context_matcher"):
        return _install_matcher(shell.Completer.custom_matchers, session)
    undo = _install_hook(shell.strdispatchers["complete_command"], session)
    matchers = shell.Completer.custom_matchers

    def matcher(text: str) -> list[str]:  # IPython asks it for its name
        return _matched(shell, session, text)

    matchers.append(matcher)

    def remove() -> None:
        undo()
        matchers.remove(matcher)

    return remove


def _matched(shell: InteractiveShell, session: Callable[[], Session], text: str) -> list[str]:
    """Complete a name in a live cell on IPython 7, which tells only the name.

    The cell is in the kernel's request.
    """
    try:
        asked = shell.kernel.get_parent("shell")["content"]
        words, token = live_candidates(asked["code"], asked["cursor_pos"], session)
    except (AttributeError, KeyError, TypeError):  # a terminal, or another request
        return []
    return words if token == text else []


def _install_matcher(matchers: list[Any], session: Callable[[], Session]) -> Callable[[], None]:
    @completer.context_matcher()
    def mwmagic_matcher(context: Any) -> dict[str, Any]:  # noqa: ANN401 - IPython is not typed
        first = context.cursor_line == 0 or not context.full_text.lstrip().startswith("%%")
        if first:
            words, token = candidates(context.line_with_cursor[: context.cursor_position], session)
            words.sort(key=_natural)
        else:
            words, token = live_candidates(*_place(context), session)
        completions = [completer.SimpleCompletion(word, type="param") for word in words]
        # IPython's own token ends at the colon of a task's name.
        fragment = token if words else context.token
        return {
            "completions": completions,
            "suppress": bool(completions),
            "ordered": first,
            "matched_fragment": fragment,
        }

    matchers.append(mwmagic_matcher)
    return lambda: matchers.remove(mwmagic_matcher)


def _natural(word: str) -> list[tuple[int, str]]:
    """Return a key by which worker:2 comes before worker:10."""
    parts = re.split(r"(\d+)", word)
    return [(int(part), "") if part.isdigit() else (0, part) for part in parts]


def _place(context: Any) -> tuple[str, int]:  # noqa: ANN401 - IPython is not typed
    """Return the cell, and where the cursor is in it."""
    lines = context.full_text.split("\n")[: context.cursor_line]
    return context.full_text, sum(len(line) + 1 for line in lines) + context.cursor_position


def _install_hook(hooks: Any, session: Callable[[], Session]) -> Callable[[], None]:  # noqa: ANN401 - IPython is not typed
    def complete(event: Any) -> list[str]:  # noqa: ANN401 - IPython is not typed
        words, token = candidates(event.text_until_cursor, session)
        # IPython's own token, which is replaced, begins after the colon of a task's name.
        done = len(token) - len(event.symbol)
        return [word[done:] for word in words]

    hooks.add_re(_HOOKED, complete, 50)
    return lambda: hooks.regexs.pop(_HOOKED, None) and None
