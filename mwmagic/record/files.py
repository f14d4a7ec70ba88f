"""Files written as a whole, private directories, and which of the user's files mwmagic wrote.

The record in a file's directory keeps a hash of what was written to the file, so that mwmagic
replaces no others, even after the directory was moved.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

from .paths import ignore_file, mark_file

__all__ = [
    "is_as_written",
    "keep_from_git",
    "make_private",
    "note_written",
    "replace",
    "reserve",
    "save_new",
    "was_written",
]


def replace(path: Path, data: bytes) -> None:
    """Write a file so that readers see the old content or the new, never a part."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:64]}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        Path(temporary).replace(path)
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        raise


def reserve(path: Path, size: int) -> None:
    """Have a file take up space on its disk."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, size)
    finally:
        os.close(descriptor)


def fill(reserved: Path, path: Path, data: bytes) -> None:
    """Replace a file by one that took up space for this: no other process can take it meanwhile."""
    with reserved.open("r+b") as file:
        file.write(data)
        file.truncate()
    reserved.replace(path)


def save_new(path: Path, data: bytes) -> None:
    """Write a new file that is not read before this has returned; `replace` takes longer."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.write(descriptor, data)
    finally:
        os.close(descriptor)


def make_private(folder: Path) -> None:
    """Make a directory below an existing one, and those between them, with mode 0700."""
    if not folder.is_dir():
        make_private(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def keep_from_git(root: Path) -> None:
    """Have git ignore the record below `root`, whose directory exists."""
    if not ignore_file(root).exists():
        replace(ignore_file(root), b"*\n")


def note_written(path: Path, data: bytes) -> None:
    """Note that mwmagic wrote `data` to a file."""
    mark = mark_file(path)
    make_private(mark.parent)
    keep_from_git(path.parent)
    replace(mark, _digest(data))


def was_written(path: Path) -> bool:
    """Return whether mwmagic ever wrote a file of this name."""
    return mark_file(path).is_file()


def is_as_written(path: Path) -> bool:
    """Return whether a file holds what mwmagic wrote to it, unchanged."""
    return was_written(path) and mark_file(path).read_bytes() == _digest(path.read_bytes())


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).hexdigest().encode() + b"\n"
