"""Why a file cannot be read, written or replaced, with the next step; and sizes in words."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["exists_words", "file_words", "present_words", "size_words", "surrogate_words"]

_DENIED = "{path} cannot be written or read: {why}; allow it, or use another directory"
_FULL = "there is no space left for {path}: {why}; free some, or use another directory"

_WORDS = {
    errno.ENOENT: "{path} is not there: {why}; make its directory first, or use another",
    errno.ENOTDIR: "{path} is below something that is not a directory; use another path",
    errno.EISDIR: "{path} is a directory; name a file",
    errno.EACCES: _DENIED,
    errno.EPERM: _DENIED,
    errno.EROFS: _DENIED,
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EFBIG: _FULL,
}
"""What each error number means for the user."""


def file_words(error: OSError, path: Path | str | None = None) -> str:
    """Return why a file cannot be read or written, and what to do."""
    meant = str(path or error.filename or "the current directory")
    why = os.strerror(error.errno) if error.errno else str(error)
    text = _WORDS.get(error.errno or 0, "{path} cannot be written or read: {why}")
    return text.format(path=meant, why=why)


def surrogate_words(error: UnicodeEncodeError) -> str:
    """Return which half of a character keeps a text out of a file, and what to do."""
    line = error.object.count("\n", 0, error.start) + 1
    return (
        f"line {line} of the text has a lone surrogate ({error.object[error.start]!a}), half of a "
        "character that no file can hold; remove it, or write it as an escape"
    )


def present_words(path: Path | str, other: str) -> str:
    """Return why what is there already is not replaced; `other` says what names another place."""
    return f"{path} exists, and is left as it is; `--overwrite` replaces it, {other}"


def exists_words(path: Path | str, other: str, *, known: bool) -> str:
    """Return why a file of the user's is not replaced, and what to do."""
    why = "was changed since mwmagic wrote it" if known else "is not known to be mwmagic's"
    return f"{path} {why}, and is left as it is; `--overwrite` replaces it, {other}"


def size_words(size: float) -> str:
    """Return a number of bytes in words: ``12 kB``, ``512 MB``, ``1.5 GB``."""
    if 0 < size < 2**20:
        return f"{max(size / 2**10, 1):.0f} kB"
    megabytes = size / 2**20
    return f"{megabytes:.0f} MB" if megabytes < 2**10 else f"{megabytes / 2**10:.1f} GB"
