"""Links: the two streams between a supervisor and an agent."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Protocol

from mwmagic.model.messages import MESSAGE_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Link", "Pipes"]


class Link(Protocol):
    """What an agent's commands and events travel over.

    Attributes
    ----------
    events : asyncio.StreamReader
        The agent's standard output.
    pid : int or None
        The child of this process that carries the link, if there is one.
    """

    events: asyncio.StreamReader
    pid: int | None

    def write(self, data: bytes) -> None:
        """Write to the agent's standard input; nothing happens once that is closed."""

    def close(self) -> None:
        """Close the agent's standard input, which ends it."""

    def kill(self) -> None:
        """Break the link at once."""

    async def wait(self) -> None:
        """Wait until nothing of the link is left on this machine."""


class Pipes:
    """The pipes of a child process: the agent itself, or a client such as ``ssh`` or ``srun``.

    Parameters
    ----------
    process : asyncio.subprocess.Process
        It has pipes for its standard input and output.
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

    def kill(self) -> None:
        """Kill the process."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def wait(self) -> None:
        """Wait for the process's end."""
        await self._process.wait()
