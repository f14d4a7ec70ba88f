"""A worker's output on its way to a file and to a reader."""

from __future__ import annotations

import os
from contextlib import suppress

from .wire import CHUNK_BYTES, as_bytes

LAG_BYTES = 4 << 20
"""How far a reader may fall behind before the log skips ahead."""


class Log:
    """One worker's output: a pipe whose bytes go to a file at once, and to a reader by credit.

    Nothing is buffered in memory: what is forwarded is read back from the file.
    """

    def __init__(self, path: str, credit: int) -> None:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOCTTY
        name = as_bytes(path)
        folder = os.path.dirname(name) or b"."  # noqa: PTH120 - pathlib costs a third of the start-up
        with suppress(FileExistsError):
            os.mkdir(folder, 0o700)  # noqa: PTH102 - the same
        self.file = os.open(name, flags, 0o600)
        self.size = self.sent = os.fstat(self.file).st_size
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
            while data:
                count = os.write(self.file, data)
                data = data[count:]
                self.size += count
        except OSError as error:
            self.error = f"the log lost {len(data)} bytes or more: {error.strerror}"
            self.errno = error.errno
        return taken

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
            data = os.pread(self.file, min(limit, CHUNK_BYTES), offset)
        self.sent = offset + len(data) if data else self.size  # the file may have been truncated
        self.credit -= len(data)
        return offset, data

    def close(self) -> None:
        """Close all that is open."""
        for descriptor in (self.file, self.reader, self.writer):
            if descriptor >= 0:
                os.close(descriptor)
