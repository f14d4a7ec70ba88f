"""Links: the two byte streams between a supervisor and an agent, and waits that end in time."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections import deque
from typing import TYPE_CHECKING, Protocol, TypeVar

from mwmagic.model.messages import MESSAGE_BYTES, LineBuffer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

__all__ = ["LineReader", "Link", "Pipes", "Stderr", "within"]

READING_SECONDS = 0.001
"""How long lines are handed on in a row before others have their turn."""


class LineReader:
    """Takes the bytes of a stream, and hands on its lines as they come.

    A task that awaits `asyncio.StreamReader.readline` gets a line two turns of the event loop after
    its bytes have come, each of which asks the kernel what else is ready.
    """

    def __init__(self) -> None:
        self.ended = False
        self._buffer = LineBuffer()
        self._waiting: deque[bytes] = deque()
        self._due = False
        self._on_line: Callable[[bytes], None] | None = None
        self._end: Callable[[], None] = lambda: None

    def listen(self, take: Callable[[bytes], None], end: Callable[[], None]) -> None:
        """Hand on what has come, and what comes."""
        self._on_line, self._end = take, end
        self._hand_on()

    def feed(self, data: bytes) -> None:
        """Take bytes; none are the end."""
        if self.ended:
            return
        self._waiting += self._buffer.lines(data)
        rest = self._buffer.rest
        self.ended = not data or len(rest) > MESSAGE_BYTES
        if self.ended and rest:
            self._waiting.append(bytes(rest[:MESSAGE_BYTES]))
        if not self._due:
            self._hand_on()

    @property
    def full(self) -> bool:
        """Whether there are lines that wait for their turn."""
        return bool(self._waiting)

    def mute(self) -> None:
        """Hand on nothing more."""
        self._on_line = None

    def _hand_on(self) -> None:
        self._due = False
        until = time.monotonic() + READING_SECONDS
        while self._waiting and self._on_line is not None:
            self._on_line(self._waiting.popleft())
            if self._waiting and time.monotonic() > until:
                self._due = True  # a request does not wait for all that hundreds say
                asyncio.get_running_loop().call_soon(self._hand_on)
                return
        if self.ended and self._on_line is not None:
            self.mute()
            self._end()


PIPE_BYTES = 65536


class Link(Protocol):
    """Carries an agent's commands and events.

    `events` is the agent's standard output; `pid` is this process's child that carries the link, if
    there is one.
    """

    events: LineReader
    pid: int | None

    def write(self, data: bytes) -> None:
        """Write to the agent's standard input; does nothing once that is closed."""

    def close(self) -> None:
        """Close the agent's standard input, which ends it."""

    def wake(self) -> None:
        """Let the process that carries the link continue, in case it was stopped."""

    def kill(self) -> None:
        """Break the link at once."""

    async def wait(self) -> None:
        """Wait until the link's processes on this machine are gone."""


class Pipes:
    """The pipes of a child process: the agent itself, or a client such as ``ssh`` or ``srun``."""

    def __init__(
        self, process: asyncio.subprocess.Process, output: int, errors: int, stderr: Stderr
    ) -> None:
        if process.stdin is None:
            raise ValueError("the process was started without a pipe")
        self.events = LineReader()
        self.pid: int | None = process.pid
        self._commands = process.stdin
        self._process = process
        self._stderr = stderr
        self._output = _Pipe(output, self.events.feed, lambda: self.events.full)
        self._errors = _Pipe(errors, self._complained)

    @classmethod
    async def open(
        cls, command: Sequence[str], env: Mapping[str, str] | None, stderr: Stderr | None = None
    ) -> Pipes:
        """Start a command; without an environment it inherits this process's."""
        # Not pipes of asyncio's: a process that outlives the command, such as a connection that
        # ssh shares, may keep its own end open, and waiting for the command must not wait for that.
        (output, says), (errors, complains) = os.pipe(), os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=says,
                stderr=complains,
                env=None if env is None else dict(env),
                start_new_session=True,
            )
        except BaseException:
            os.close(output)
            os.close(errors)
            raise
        finally:
            os.close(says)
            os.close(complains)
        return cls(process, output, errors, stderr or Stderr())

    def write(self, data: bytes) -> None:
        """Write to the process; see `Link`."""
        if not self._commands.is_closing():
            self._commands.write(data)

    def close(self) -> None:
        """Close the process's standard input."""
        self._commands.close()

    def wake(self) -> None:
        """Let the process continue; this does nothing to one that runs."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill the process."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def wait(self) -> None:
        """Wait until the process has ended, and take its last words."""
        await self._process.wait()
        self._output.finish()
        self._errors.finish()
        self.events.feed(b"")

    def _complained(self, data: bytes) -> None:
        """Take what the process wrote to its standard error."""
        self._stderr.feed(data)
        with contextlib.suppress(OSError):  # our own standard error may be closed
            os.write(2, data)


class _Pipe:
    """The end to read of a pipe."""

    def __init__(
        self,
        descriptor: int,
        take: Callable[[bytes], None],
        busy: Callable[[], bool] = lambda: False,
    ) -> None:
        self._descriptor: int | None = descriptor
        self._on_line = take
        self._busy = busy
        os.set_blocking(descriptor, False)
        asyncio.get_running_loop().add_reader(descriptor, self.read)

    def read(self) -> None:
        """Take what is there, at most all that a pipe holds, unless its taker is busy."""
        if self._descriptor is None or self._busy():
            return
        try:
            data = os.read(self._descriptor, PIPE_BYTES)
        except BlockingIOError:
            return
        self._on_line(data)
        if not data:
            self.close()

    def finish(self) -> None:
        """Take what is left, and close it."""
        self._busy = lambda: False
        self.read()
        self.close()

    def close(self) -> None:
        """Close it."""
        if self._descriptor is not None:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = None


STDERR_BYTES = 8192
STDERR_LINES = 5
STDERR_LINE_CHARACTERS = 300


class Stderr:
    """The end of a text that may be anything, without the lines in which a word of `noise` is."""

    def __init__(self, *noise: str) -> None:
        self._noise = noise
        self._data = b""

    def feed(self, data: bytes) -> None:
        """Add to the text; only its end is kept."""
        self._data = (self._data + data)[-STDERR_BYTES:]

    def forget(self) -> None:
        """Begin again."""
        self._data = b""

    @property
    def last(self) -> str:
        """The last lines on one, without what would control a terminal."""
        lines = map(_plain, self._data.decode(errors="replace").splitlines())
        telling = [one for one in lines if one and not any(word in one for word in self._noise)]
        return "; ".join(telling[-STDERR_LINES:])


def _plain(line: str) -> str:
    text = "".join(one if one.isprintable() else " " for one in line)
    return text.strip().removesuffix(".")[:STDERR_LINE_CHARACTERS]


T = TypeVar("T")


async def within(seconds: float, awaited: Awaitable[T]) -> T:
    """Return the result of what is awaited; cancel it when the time is up.

    Until Python 3.12 `asyncio.wait_for` loses a cancellation that comes just as what it waits for
    is done. A loop that should have been cancelled then continues for ever.
    """
    task = asyncio.ensure_future(awaited)
    try:
        await asyncio.wait({task}, timeout=seconds)
    finally:
        late = not task.done()
        if late:
            task.cancel()
            await asyncio.wait({task})
    if late and task.cancelled():
        raise asyncio.TimeoutError
    return task.result()
