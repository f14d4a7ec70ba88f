"""Links: the two byte streams between a supervisor and an agent."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from typing import TYPE_CHECKING, Protocol

from .inlet import Inlet
from .stderr import Stderr

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["Link", "Pipes"]

PIPE_BYTES = 65536


class Link(Protocol):
    """Carries an agent's commands and events.

    Attributes
    ----------
    events : Inlet
        The agent's standard output.
    pid : int or None
        The id of this process's child that carries the link, if there is one.
    """

    events: Inlet
    pid: int | None

    def write(self, data: bytes) -> None:
        """Write to the agent's standard input; does nothing once that is closed."""

    def close(self) -> None:
        """Close the agent's standard input, which ends it."""

    def wake(self) -> None:
        """Let the process that carries the link go on, in case it was stopped."""

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
        self.events = Inlet()
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
        """Let the process go on; this does nothing to one that runs."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill the process."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def wait(self) -> None:
        """Wait until the process has ended, and take its last words."""
        await self._process.wait()
        for pipe in (self._output, self._errors):
            pipe.read()
            pipe.close()
        self.events.feed(b"")

    def _complained(self, data: bytes) -> None:
        """Take what the process wrote to its standard error."""
        self._stderr.take(data)
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
        self._take = take
        self._busy = busy
        os.set_blocking(descriptor, False)
        asyncio.get_running_loop().add_reader(descriptor, self._ready)

    def _ready(self) -> None:
        if not self._busy():
            self.read()

    def read(self) -> None:
        """Take what is there: at most all that a pipe holds."""
        if self._descriptor is None:
            return
        try:
            data = os.read(self._descriptor, PIPE_BYTES)
        except BlockingIOError:
            return
        self._take(data)
        if not data:
            self.close()

    def close(self) -> None:
        """Close it."""
        if self._descriptor is not None:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = None
