"""Links: the two byte streams between a supervisor and an agent."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from typing import TYPE_CHECKING, Protocol

from mwmagic.model.messages import MESSAGE_BYTES

from .stderr import Stderr

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Link", "Pipes"]

PIPE_BYTES = 65536


class Link(Protocol):
    """Carries an agent's commands and events.

    Attributes
    ----------
    events : asyncio.StreamReader
        The agent's standard output.
    pid : int or None
        The id of this process's child that carries the link, if there is one.
    """

    events: asyncio.StreamReader
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
    """The pipes of a child process: the agent itself, or a client such as ``ssh`` or ``srun``.

    Parameters
    ----------
    process : asyncio.subprocess.Process
        A process with pipes as standard input and output.
    errors : int
        The end to read of a third pipe, which is the process's standard error.
    stderr : Stderr
        Takes what the process writes there, which is also passed on to our own standard error.
    """

    def __init__(self, process: asyncio.subprocess.Process, errors: int, stderr: Stderr) -> None:
        if process.stdin is None or process.stdout is None:
            raise ValueError("the process was started without pipes")
        self.events = process.stdout
        self.pid: int | None = process.pid
        self._commands = process.stdin
        self._process = process
        self._errors: int | None = errors
        self._stderr = stderr
        os.set_blocking(errors, False)
        asyncio.get_running_loop().add_reader(errors, self._listen)

    @classmethod
    async def open(
        cls, command: Sequence[str], env: Mapping[str, str] | None, stderr: Stderr | None = None
    ) -> Pipes:
        """Start a command; without an environment it inherits this process's.

        Raises
        ------
        OSError
            It cannot be started.
        """
        # Not a pipe of asyncio's: a process that outlives the command, such as a connection that
        # ssh shares, may keep its own end open, and waiting for the command must not wait for that.
        errors, writer = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=writer,
                env=None if env is None else dict(env),
                limit=MESSAGE_BYTES,
                start_new_session=True,
            )
        except BaseException:
            os.close(errors)
            raise
        finally:
            os.close(writer)
        return cls(process, errors, stderr or Stderr())

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
        self._listen()
        self._deafen()

    def _listen(self) -> None:
        """Take what the process wrote to its standard error: at most all that a pipe holds."""
        if self._errors is None:
            return
        try:
            data = os.read(self._errors, PIPE_BYTES)
        except BlockingIOError:
            return
        self._stderr.take(data)
        with contextlib.suppress(OSError):  # our own standard error may be closed
            os.write(2, data)
        if not data:
            self._deafen()

    def _deafen(self) -> None:
        if self._errors is not None:
            asyncio.get_running_loop().remove_reader(self._errors)
            os.close(self._errors)
            self._errors = None
