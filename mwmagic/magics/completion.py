"""Completion of the magics' options, on IPython 9 and on 7.34."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from IPython.core import completer

from .extension import MAGICS

if TYPE_CHECKING:
    from collections.abc import Callable

    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["install"]

_PARSERS = {one.name: one.parser for one in MAGICS}

_LINE = re.compile(r"^\s*(?:[\w.]+\s*=\s*)?%{1,2}(?P<magic>mw_\w+)\s+(?P<rest>.*)$")
"""A magic's line, also as ``x = %mw_cluster``."""

_HOOKED = re.compile(r".*%{1,2}mw_\w+")
"""What IPython 7 asks its hooks with: the line's first word, or all of it."""


def candidates(line: str) -> list[str] | None:
    """Return what may follow in the line of a magic of ours.

    Parameters
    ----------
    line : str
        The text from the start of the line to the cursor.

    Returns
    -------
    list of str or None
        None where the line is no magic of ours, or none of its options is asked for.
    """
    match = _LINE.match(line)
    parser = _PARSERS.get(match["magic"]) if match else None
    if match is None or parser is None:
        return None
    words = match["rest"].split()
    token = "" if match["rest"][-1:].isspace() else (words.pop() if words else "")
    offered = parser.choices(words[-1]) if words else []
    if not offered and token.startswith("-"):
        offered = parser.flags()
    return [word for word in offered if word.startswith(token)] or None


def install(shell: InteractiveShell) -> Callable[[], None]:
    """Teach the shell to complete our options; return how to undo it."""
    if hasattr(completer, "context_matcher"):
        return _install_matcher(shell.Completer.custom_matchers)
    return _install_hook(shell.strdispatchers["complete_command"])


def _install_matcher(matchers: list[Any]) -> Callable[[], None]:
    @completer.context_matcher()
    def mwmagic_matcher(context: Any) -> dict[str, Any]:  # noqa: ANN401 - IPython is not typed
        first = context.cursor_line == 0 or not context.full_text.lstrip().startswith("%%")
        words = candidates(context.line_with_cursor[: context.cursor_position]) if first else None
        completions = [completer.SimpleCompletion(word, type="param") for word in words or ()]
        return {"completions": completions, "suppress": bool(completions)}

    matchers.append(mwmagic_matcher)
    return lambda: matchers.remove(mwmagic_matcher)


def _install_hook(hooks: Any) -> Callable[[], None]:  # noqa: ANN401 - IPython is not typed
    def complete(event: Any) -> list[str]:  # noqa: ANN401 - IPython is not typed
        return candidates(event.text_until_cursor) or []

    hooks.add_re(_HOOKED, complete, 50)
    return lambda: hooks.regexs.pop(_HOOKED, None) and None
