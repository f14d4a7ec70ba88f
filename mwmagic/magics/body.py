"""The body of a worker's cell, which runs as plain Python and without the notebook's variables."""

from __future__ import annotations

import ast
import re
import shlex
import symtable
from typing import TYPE_CHECKING

from IPython.core.inputtransformer2 import TransformerManager

from mwmagic.errors import BadArguments

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

__all__ = ["borrowed", "check_plain", "parted"]

_HELP = re.compile(r"\s*\?{0,2}\s*([^\W\d][\w.]*)\s*\?{0,2}\s*")
"""A line that asks what a name is: ``model.fit?`` or ``?model.fit``."""


def check_plain(body: str) -> None:
    """Refuse a body with IPython's own syntax, such as ``!pip``, ``%matplotlib`` or ``x?``.

    Any other mistake is left to the workers, whose failure shows it in full.
    """
    try:
        ast.parse(body)
    except SyntaxError as error:
        line = error.lineno or 1
        text = body.splitlines()[line - 1].strip() if body else ""
        if _is_ipython(text):
            raise BadArguments(
                f"line {line + 1} of the cell, `{text[:100]}`, is IPython's and not Python's, and "
                f"workers run the cell as plain Python; {_instead(text)}"
            ) from None
    except ValueError:
        pass  # a null byte, which the workers' failure tells


def parted(body: str) -> tuple[str, str]:
    """Return a body without a last line such as ``model.fit?``, and the name that it asks about."""
    code, _, last = body.rstrip().rpartition("\n")
    found = _HELP.fullmatch(last) if "?" in last else None
    return (code, found[1]) if found else (body, "")


def _instead(line: str) -> str:
    """Say what to write instead of a line of IPython's."""
    word = line.lstrip("%!").partition(" ")[0]
    if line.startswith(("!pip", "%pip", "!conda", "%conda")):
        return "install packages in a cell of its own, before the workers start"
    if line.startswith("!"):
        return f"write `import subprocess; subprocess.run({_words(line.lstrip('!'))})`"
    if word in _INSTEAD:
        return _INSTEAD[word]
    if line.startswith("?") or line.rstrip("?") != line:
        return f"write `help({line.strip('?')})`"
    return "run that line in a cell of its own"


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:  # a quotation mark without its other
        return command.split()


_INSTEAD = {
    "time": "take `time.time()` before and after it",
    "timeit": "write `import timeit` and call `timeit.timeit`",
    "matplotlib": "leave it out: `%%mw_live` shows figures as it is",
    "env": "write `import os; os.environ[...] = ...`, or declare it with `--env`",
    "cd": "write `import os; os.chdir(...)`",
    "load_ext": "load extensions in a cell of its own",
}
"""What does in Python what a magic does."""


def _is_ipython(line: str) -> bool:
    """Return whether IPython would turn a line into a call of its own."""
    return (
        "get_ipython()" in TransformerManager().transform_cell(line) and "get_ipython" not in line
    )


def borrowed(body: str, notebook: Collection[str]) -> list[str]:
    """Return the global names that a body reads but never sets, and that a notebook has."""
    try:
        top = symtable.symtable(body, "cell", "exec")
    except (SyntaxError, ValueError):
        return []  # it will not run
    own = {one.get_name() for one in top.get_symbols() if one.is_assigned() or one.is_imported()}
    read = {
        one.get_name()
        for table in _tables(top)
        for one in table.get_symbols()
        if one.is_referenced() and (table is top or one.is_global())
    }
    return sorted((read - own) & {*notebook})


def _tables(top: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    """Yield the symbols of a piece of code and of all functions and classes in it."""
    yield top
    for table in top.get_children():
        yield from _tables(table)
