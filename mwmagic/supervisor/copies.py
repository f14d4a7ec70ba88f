"""Copies of files from a machine that has a disk of its own."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, contextmanager, suppress
from typing import TYPE_CHECKING

from mwmagic.agent.file import write
from mwmagic.agent.wire import CHUNK_BYTES, LOG_LOST, as_bytes, unpacked
from mwmagic.errors import SupervisorError
from mwmagic.words.file import file_words

from .window import in_order

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator

    from mwmagic.engines.channel import Channel
    from mwmagic.model.messages import Message

__all__ = ["Copy", "Logs"]


class Copy:
    """A local copy of a file on another machine.

    Attributes
    ----------
    path : str
        The copy's path.
    size : int
        The number of bytes that the copy reaches to.
    """

    def __init__(self, channel: Channel, path: str, there: str) -> None:
        self.path = path
        self._there = there
        self.size = 0
        self._channel = channel
        self._holes: list[tuple[int, int]] = []

    def put(self, offset: int, data: bytes) -> None:
        """Write a piece that the agent sent; `fill` fetches the gap that it may leave before it."""
        if offset > self.size:
            self._holes.append((self.size, offset))
        self.size = max(self.size, offset + len(data))
        try:
            write(self.path, offset, data)
        except OSError:
            self._holes.append((offset, offset + len(data)))
            raise

    def lacks(self, size: int) -> int:
        """Return how many of the file's first bytes are missing."""
        return sum(end - start for start, end in self._holes) + max(0, size - self.size)

    async def fill(self, size: int) -> None:
        """Fetch what is missing of the file's first bytes."""
        if size > self.size:
            self._holes.append((self.size, size))
            self.size = size
        while self._holes:
            start, end = self._holes[0]
            async with aclosing(self._pieces(start, end)) as pieces:
                async for offset, data in pieces:
                    if offset != start:
                        break  # the piece before was shorter, as the file was then
                    if not data:
                        raise SupervisorError(f"{self.path} ends at {start} bytes, not at {end}")
                    write(self.path, start, data)
                    start += len(data)
                    self._holes[0] = (start, end)
            if start == end:
                del self._holes[0]

    async def pull(self) -> None:
        """Fetch what was appended to the file since the last call, if the file exists."""
        with suppress(SupervisorError):  # the file does not exist yet, or the agent is gone
            await self.fill(self.size)
            while True:
                data, size = await self._fetch(self.size, CHUNK_BYTES)
                write(self.path, self.size, data)  # even if empty, since the file exists
                self.size += len(data)
                if self.size >= size:
                    return
                await self.fill(size)

    def _pieces(self, start: int, end: int) -> AsyncGenerator[tuple[int, bytes], None]:
        """Fetch a part of the file in pieces; yield each and where it begins."""

        async def piece(offset: int) -> tuple[int, bytes]:
            data, _ = await self._fetch(offset, end - offset)
            return offset, data

        return in_order(map(piece, range(start, end, CHUNK_BYTES)))

    async def _fetch(self, offset: int, count: int) -> tuple[bytes, int]:
        """Return a piece of the file, and the size of the file."""
        piece = min(count, CHUNK_BYTES)
        answer = await self._channel.request("fetch", path=self._there, offset=offset, bytes=piece)
        return unpacked(answer["data"]), int(answer["size"])


class Logs:
    """Copies the logs of another machine's processes; holds exits back until a log is complete.

    An event whose bytes cannot be written here says why, as its ``trouble``.
    """

    def __init__(
        self,
        channel: Channel,
        there: Callable[[str], str],
        listener: Callable[[Message], None],
    ) -> None:
        self._channel = channel
        self._there = there
        self._listener = listener
        self._copies: dict[str, Copy] = {}
        self._reports: dict[str, Copy | None] = {}
        self._filling: dict[str, tuple[asyncio.Task[None], Message]] = {}

    def begin(self, process: str, log: str, report: str | None) -> None:
        """Start to copy the log of a process, and the report that it may leave."""
        self._copies[process] = self._copy(log)
        self._reports[process] = self._copy(report) if report else None

    def _copy(self, path: str) -> Copy:
        return Copy(self._channel, path, self._there(path))

    def take(self, event: Message) -> None:
        """Pass an event on, or hold it back."""
        copy = self._copies.get(event.get("process", ""))
        if copy is not None and event["type"] == "output":
            with _noting(event, copy.path):
                copy.put(event["offset"], as_bytes(event["data"]))
        if copy is not None and event["type"] == "exited":
            del self._copies[event["process"]]
            report = self._reports.pop(event["process"])
            if copy.lacks(event["size"]) or event["report"]:
                filling = asyncio.create_task(self._fill(copy, report, event))
                self._filling[event["process"]] = filling, event
                return
        self._listener(event)

    def flush(self) -> None:
        """Report the exits held back: the agent is gone, and with it what is missing."""
        filling, self._filling = self._filling, {}
        for task, event in filling.values():
            task.cancel()
            self._listener(event)

    async def _fill(self, copy: Copy, report: Copy | None, event: Message) -> None:
        with _noting(event, copy.path):
            await self._complete(copy, event)
        if report is not None and event["report"]:
            with _noting(event, report.path):
                await report.pull()
        if self._filling.pop(event["process"], None) is not None:
            self._listener(event)

    async def _complete(self, copy: Copy, event: Message) -> None:
        """Fetch what a log lacks at its process's exit, and say there what could not be."""
        lacks = copy.lacks(event["size"])
        try:
            await copy.fill(event["size"])
        except SupervisorError as error:
            _lost(event, f"{lacks} bytes of the log could not be fetched: {error}")
        except OSError as error:
            why = file_words(error, copy.path)
            left = copy.lacks(event["size"])
            _lost(event, f"{left} bytes of the log are lost: {why}", error.errno)
            raise


def _lost(event: Message, error: str, number: int | None = None) -> None:
    """Say in an exit, unless it says something else, that bytes of the log are lost."""
    if event["error"] is None:
        event["reason"], event["error"], event["errno"] = LOG_LOST, error, number


@contextmanager
def _noting(event: Message, path: str) -> Iterator[None]:
    """Note in an event why a file cannot be written here, and continue."""
    try:
        yield
    except OSError as error:
        event["trouble"] = file_words(error, path)
