"""The local engine: every task on this machine, under one agent."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import mwmagic.agent

from .channel import Channel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mwmagic.model.cluster import Task

__all__ = ["AGENT", "LocalEngine"]

AGENT = Path(mwmagic.agent.__file__).with_name("agent.py")
"""The file that an engine runs on each machine."""


class LocalEngine:
    """One agent, a child of the supervisor."""

    def __init__(self) -> None:
        self._channel: Channel | None = None

    async def reserve(self, tasks: Sequence[Task]) -> dict[Task, Channel]:
        """Start the agent; see `mwmagic.engines.Engine`."""
        self._channel = await Channel.open(
            [sys.executable, "-I", "-S", str(AGENT)],
            host="localhost",
            env=dict(os.environ),
            parent=os.getpid(),
        )
        return dict.fromkeys(tasks, self._channel)

    async def close(self) -> None:
        """End the agent, and with it every worker."""
        if self._channel is not None:
            await self._channel.close()
