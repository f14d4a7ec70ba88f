"""Commands of a scheduler, whose answers may be missing, late or garbage."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from .link import within

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Queries"]

COMMAND_SECONDS = 10.0
"""Time limit for a scheduler's command."""


class Queries:
    """Runs a scheduler's commands.

    Attributes
    ----------
    pids : set of int
        The ids of those that run.
    """

    def __init__(self, env: Mapping[str, str]) -> None:
        self.env = dict(env)
        self.pids: set[int] = set()

    async def answer(self, *command: str, seconds: float = COMMAND_SECONDS) -> str:
        """Return what a command prints; nothing if it fails, is missing or takes too long."""
        starting = asyncio.create_task(self._started(command))
        try:
            # Cancelling a start would lose track of the process.
            process = await asyncio.shield(starting)
        except asyncio.CancelledError:
            await self._end(await starting)
            raise
        if process is None:
            return ""
        try:
            out, _ = await within(seconds, process.communicate())
        except asyncio.TimeoutError:
            return ""
        finally:
            await self._end(process)
        return "" if process.returncode else out.decode(errors="replace")

    async def _started(self, command: Sequence[str]) -> asyncio.subprocess.Process | None:
        pipe, null = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        try:
            process = await asyncio.create_subprocess_exec(
                *command, stdin=null, stdout=pipe, stderr=null, env=self.env, start_new_session=True
            )
        except OSError:
            return None
        self.pids.add(process.pid)
        return process

    async def _end(self, process: asyncio.subprocess.Process | None) -> None:
        if process is not None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            self.pids.discard(process.pid)
