"""Files written as a whole, and directories that only their owner reads."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from .paths import ignore_file

__all__ = ["keep_from_git", "make_private", "replace", "reserve", "save_new"]


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
