"""A worker's output on its way to a file and to a reader."""

from __future__ import annotations

import os
from contextlib import suppress

from .wire import CHUNK_BYTES, as_bytes

LAG_BYTES = 4 << 20
"""How far a reader may fall behind before the log skips ahead."""

REST_BYTES = 64 << 20
"""The most output that is held in memory after the file could not be written."""


class Log:
    """One worker's output: a pipe whose bytes go to a file at once, and to a reader by credit.

    Nothing is buffered in memory: what is forwarded is read back from the file. Once that cannot be
    written, as on a full disk, it is never written again, so that it is the output's beginning. The
    rest is in a file in memory, at the same offsets; others open it as a file of this process.
    """

    def __init__(self, path: str, credit: int) -> None:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOCTTY
        name = as_bytes(path)
        folder = os.path.dirname(name) or b"."  # noqa: PTH120 - pathlib costs a third of the start-up
        with suppress(FileExistsError):
            os.mkdir(folder, 0o700)  # noqa: PTH102 - the same
        self.file = os.open(name, flags, 0o600)
        self.size = self.sent = os.fstat(self.file).st_size
        self.kept = self.size
        self.rest = -1
        self.credit = credit
        self.error: str | None = None
        self.errno: int | None = None
        self.ended = False
        self.reader, self.writer = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.reader, False)

    @property
    def ready(self) -> bool:
        """Whether there is output to forward, and credit for it."""
        return self.size > self.sent and self.credit > 0

    def tee(self) -> int:
        """Move the contents of the pipe to the file, and return the number of bytes."""
        try:
            data = os.read(self.reader, CHUNK_BYTES)
        except BlockingIOError:
            return 0
        taken = len(data)
        self.ended = not data
        try:
            while data and self.rest < 0:
                count = os.write(self.file, data)
                data = data[count:]
                self.size += count
        except OSError as error:
            self.rest = os.memfd_create("mwmagic-log")
            self.kept = self.size
            self.error = f"the log ends after {self.kept:,} bytes: {error.strerror}"
            self.errno = error.errno
        if data:
            self.hold(data)
        return taken

    def hold(self, data: bytes) -> None:
        """Keep output in memory that the file cannot take, as much as there may be of it."""
        left = self.kept + REST_BYTES - self.size
        if len(data) > left:
            self.error = f"the log ends after {self.kept:,} bytes; {REST_BYTES:,} more were shown"
        self.size += os.pwrite(self.rest, data[: max(0, left)], self.size)

    def launched(self) -> None:
        """Leave the pipe's other end to the worker."""
        os.close(self.writer)
        self.writer = -1

    def piece(self, limit: int) -> tuple[int, bytes]:
        """Return the offset and the bytes to forward next, at most `limit`."""
        if self.size - self.sent > LAG_BYTES:
            self.sent = self.size - CHUNK_BYTES
        offset = self.sent
        data = b""
        with suppress(OSError):  # a file system that cannot be read must not end the training
            source = self.file if self.rest < 0 or offset < self.kept else self.rest
            data = os.pread(source, min(limit, CHUNK_BYTES), offset)
        self.sent = offset + len(data) if data else self.size  # the file may have been truncated
        self.credit -= len(data)
        return offset, data

    def close(self) -> None:
        """Close all that is open, except the rest."""
        for descriptor in (self.file, self.reader, self.writer):
            if descriptor >= 0:
                os.close(descriptor)
