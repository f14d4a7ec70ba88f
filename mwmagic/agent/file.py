"""Pieces of files on this machine, for a supervisor that does not share its disk."""

from __future__ import annotations

import os
import stat

from .wire import CHUNK_BYTES, as_bytes, packed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def piece(path: str, offset: int, count: int) -> dict[str, Any]:
    """Return a piece of a regular file, at most one chunk, and the size of the file."""
    if offset < 0 or count < 0:
        raise ValueError(f"there is no piece of {count} bytes at {offset}")
    # If it is a pipe, neither opening nor reading may wait for the other end.
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
    descriptor = os.open(as_bytes(path), flags)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError(f"{path} is not a regular file")
        data = os.pread(descriptor, min(count, CHUNK_BYTES), offset)
    finally:
        os.close(descriptor)
    return {"offset": offset, "data": packed(data), "size": status.st_size}


FILES_LIMIT = 10_000
"""How many files a directory may hold whose files are named."""


def below(path: str) -> list[tuple[str, int]]:
    """Return the files below a directory and their bytes; of a file itself, whose name is empty."""
    status = os.stat(path)  # noqa: PTH116 - pathlib is slow to import
    if stat.S_ISREG(status.st_mode):
        return [("", status.st_size)]
    if not stat.S_ISDIR(status.st_mode):
        raise ValueError(f"{path} is neither a file nor a directory")
    found: list[tuple[str, int]] = []
    top = path.rstrip("/")
    for folder, _, names in os.walk(top, onerror=failed):
        for name in names:
            full = f"{folder}/{name}"
            if os.path.isfile(full):  # noqa: PTH113 - as above
                found.append((full[len(top) + 1 :], os.path.getsize(full)))  # noqa: PTH202 - as above
        if len(found) > FILES_LIMIT:
            raise ValueError(f"{path} holds more than {FILES_LIMIT} files")
    return found


def failed(error: OSError) -> None:
    """Raise an error that a walk would pass over."""
    raise error


def store(path: str, offset: int, data: bytes) -> None:
    """Write a piece of a private file; the first replaces what was there."""
    if offset < 0:
        raise ValueError(f"nothing is stored at {offset}")
    try:
        os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)  # noqa: PTH103, PTH120 - pathlib is slow to import
        write(path, offset, data, 0 if offset else os.O_TRUNC)
    except OSError as error:  # a write that fails does not name its file
        raise OSError(error.errno, error.strerror, path) from error


def write(path: str, offset: int, data: bytes, more: int = 0) -> None:
    """Write a piece of a private file; `more` adds to the flags with which it is opened."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
    descriptor = os.open(as_bytes(path), flags | more, 0o600)
    try:
        while data:  # a disk that is nearly full takes a part
            written = os.pwrite(descriptor, data, offset)
            offset, data = offset + written, data[written:]
    finally:
        os.close(descriptor)
