"""A file that a magic writes: as a whole, and never over anything that mwmagic did not write."""

from __future__ import annotations

import os
import stat
import uuid
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from mwmagic.errors import FileTrouble
from mwmagic.record import files
from mwmagic.record.paths import expanded
from mwmagic.words.file import exists_words, file_words, surrogate_words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .magic import Parser

__all__ = ["OutputFile", "add_overwrite"]

NEW_MODE = 0o666
"""The mode of a new file, less what the process's umask takes."""


def add_overwrite(parser: Parser) -> None:
    """Add the option that lets a magic replace a file that mwmagic did not write."""
    parser.add_argument(
        "--overwrite", action="store_true", help="Replace FILE even if mwmagic did not write it."
    )


class OutputFile:
    """A file as a magic's ``--file`` names it.

    Attributes
    ----------
    name : str
        Its path as given, without ``~``.
    """

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
        if self._overwrite or self._path.read_bytes() == data or files.is_as_written(self._path):
            return
        known = files.was_written(self._path)
        raise FileTrouble(exists_words(self.name, "`--file` names another file", known=known))

    def _write(self, draft: Path, data: bytes, mode: int | None) -> None:
        if self._path.exists():
            _require_writable(self._path)
            mode = stat.S_IMODE(self._path.stat().st_mode) if mode is None else mode
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode or NEW_MODE)
        try:
            with os.fdopen(descriptor, "wb") as files:
                files.write(data)
            if mode is not None:
                draft.chmod(mode)
        except OSError:
            draft.unlink()
            raise

    def _note(self, data: bytes) -> None:
        # The file is written. If this fails, the next cell needs `--overwrite`.
        with suppress(OSError):
            files.note_written(self._path, data)


def _require_writable(path: Path) -> None:
    """Raise the system's error if a file is read-only, which replacing it would ignore."""
    os.close(os.open(path, os.O_WRONLY | os.O_APPEND))


def _encoded(text: str) -> bytes:
    """Return what a file holds of a text."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise FileTrouble(surrogate_words(error)) from error
