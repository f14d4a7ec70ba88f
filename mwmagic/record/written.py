"""Which of the user's files mwmagic wrote, so that it replaces no others.

The record in a file's directory keeps a hash of what was written to the file, so that the
next kernel knows it too, even after the directory was moved.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from .file import keep_from_git, make_private, replace
from .paths import mark_file

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["is_known", "is_own", "note"]


def note(path: Path, data: bytes) -> None:
    """Note that mwmagic wrote `data` to a file."""
    mark = mark_file(path)
    make_private(mark.parent)
    keep_from_git(path.parent)
    replace(mark, _digest(data))


def is_known(path: Path) -> bool:
    """Return whether mwmagic ever wrote a file of this name."""
    return mark_file(path).is_file()


def is_own(path: Path) -> bool:
    """Return whether a file holds what mwmagic wrote to it, unchanged."""
    return is_known(path) and mark_file(path).read_bytes() == _digest(path.read_bytes())


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).hexdigest().encode() + b"\n"
