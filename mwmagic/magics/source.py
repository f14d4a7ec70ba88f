"""A cell's code, which runs as plain Python without the notebook's variables, and its file.

A file that a magic writes is written whole, and never over anything that mwmagic did not write.
"""

from __future__ import annotations

import ast
import os
import re
import shlex
import stat
import symtable
import uuid
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from IPython.core.inputtransformer2 import TransformerManager

from mwmagic.errors import BadArguments, FileTrouble
from mwmagic.record import paths
from mwmagic.record.paths import expanded
from mwmagic.words.file import exists_words, file_words, surrogate_words

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from .magic import Parser

__all__ = ["OutputFile", "add_overwrite", "borrowed", "check_compiles", "check_plain", "parted"]

_HELP = re.compile(r"\s*\?{0,2}\s*([^\W\d][\w.]*)\s*\?{0,2}\s*")
"""A line that asks what a name is: ``model.fit?`` or ``?model.fit``."""


def check_plain(body: str) -> None:
    """Refuse a body with IPython's own syntax, such as ``!pip``, ``%matplotlib`` or ``x?``.

    Any other mistake is left to the workers, whose failure shows it in full.
    """
    try:
        ast.parse(body)
    except SyntaxError as error:
        text = _line_of(error, body)
        if _is_ipython(text):
            raise BadArguments(
                f"{_place(error, text)}, is IPython's and not Python's, and "
                f"workers run the cell as plain Python; {_instead(text)}"
            ) from None
    except ValueError:
        pass  # a null byte, which the workers' failure reports


def check_compiles(body: str) -> None:
    """Refuse a body that is not Python, before interpreters start for it."""
    try:
        compile(body, "<cell>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    except SyntaxError as error:
        place = _place(error, _line_of(error, body))
        raise BadArguments(
            f"{place}: {type(error).__name__}: {error.msg}; "
            "the interpreters of live cells were not started"
        ) from None
    except ValueError:
        pass  # a null byte, which the workers report


def _line_of(error: SyntaxError, body: str) -> str:
    """Return the line of a body that an error is about."""
    return body.splitlines()[(error.lineno or 1) - 1].strip() if body else ""


def _place(error: SyntaxError, text: str) -> str:
    """Say which line of the cell, whose first is the magic, an error is about."""
    return f"line {(error.lineno or 1) + 1} of the cell, `{text[:100]}`"


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


NEW_MODE = 0o666
"""The mode of a new file, less what the process's umask takes."""


def add_overwrite(parser: Parser) -> None:
    """Add the option that lets a magic replace a file that mwmagic did not write."""
    parser.add_argument(
        "--overwrite", action="store_true", help="Replace FILE even if mwmagic did not write it."
    )


class OutputFile:
    """A file as a magic's ``--file`` names it; its name is that path, without ``~``."""

    def __init__(self, name: str, *, overwrite: bool) -> None:
        self.name = str(expanded(name))
        self._path = Path(self.name).resolve()  # a link stays, and what it leads to is replaced
        self._overwrite = overwrite

    @contextmanager
    def draft(self, text: str, mode: int | None = None) -> Iterator[Path]:
        """Write the new file next to the old one; it is removed unless it is moved there."""
        data = _encoded(text)
        draft = self._path.with_name(f".{self._path.name[:64]}.{uuid.uuid4().hex}")
        with self._explained():
            self._check(data)
            self._write(draft, data, mode)
        try:
            yield draft
        finally:
            if draft.exists():
                draft.unlink()
            else:
                self._note(data)

    def write(self, text: str, mode: int | None = None) -> None:
        """Write the file now; see `draft`."""
        with self.draft(text, mode) as draft, self._explained():
            draft.replace(self._path)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn the system's errors into one that says what to do."""
        try:
            yield
        except OSError as error:
            raise FileTrouble(file_words(error, self.name)) from error

    def _check(self, data: bytes) -> None:
        """Refuse to replace what mwmagic did not write."""
        if ".ipynb" in {Path(self.name).suffix.lower(), self._path.suffix.lower()}:
            raise FileTrouble(f"{self.name} is a notebook's name; name another file with --file")
        if not self._path.exists():
            return
        if not self._path.is_file():
            raise FileTrouble(f"{self.name} is not a file; name one with --file")
        if self._overwrite or self._path.read_bytes() == data or paths.is_as_written(self._path):
            return
        known = paths.was_written(self._path)
        raise FileTrouble(exists_words(self.name, "`--file` names another file", known=known))

    def _write(self, draft: Path, data: bytes, mode: int | None) -> None:
        if self._path.exists():
            _require_writable(self._path)
            mode = stat.S_IMODE(self._path.stat().st_mode) if mode is None else mode
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode or NEW_MODE)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
            if mode is not None:
                draft.chmod(mode)
        except OSError:
            draft.unlink()
            raise

    def _note(self, data: bytes) -> None:
        # The file is written. If this fails, the next cell needs `--overwrite`.
        with suppress(OSError):
            paths.note_written(self._path, data)


def _require_writable(path: Path) -> None:
    """Raise the system's error if a file is read-only, which replacing it would ignore."""
    os.close(os.open(path, os.O_WRONLY | os.O_APPEND))


def _encoded(text: str) -> bytes:
    """Return what a file holds of a text."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise FileTrouble(surrogate_words(error)) from error
