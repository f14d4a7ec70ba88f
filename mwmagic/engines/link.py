"""Links: the two byte streams between a supervisor and an agent."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from typing import TYPE_CHECKING, Protocol

from mwmagic.model.messages import MESSAGE_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Link", "Pipes"]


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
    """

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        if process.stdin is None or process.stdout is None:
            raise ValueError("the process was started without pipes")
        self.events = process.stdout
        self.pid: int | None = process.pid
        self._commands = process.stdin
        self._process = process

    @classmethod
    async def open(cls, command: Sequence[str], env: Mapping[str, str] | None) -> Pipes:
        """Start a command; without an environment it inherits this process's.

        Raises
        ------
        OSError
            It cannot be started.
        """
        return cls(
            await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env=None if env is None else dict(env),
                limit=MESSAGE_BYTES,
                start_new_session=True,
            )
        )

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
        """Wait until the process has ended."""
        await self._process.wait()
