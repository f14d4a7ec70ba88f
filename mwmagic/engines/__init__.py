"""Engines: what places agents on machines.

An engine only says where an agent runs and how to talk to it; everything else
is the supervisor's and the agent's work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from mwmagic.errors import ClusterError

from .local import LocalEngine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mwmagic.model.cluster import Task

    from .channel import Channel

__all__ = ["ENGINES", "Engine", "engine_for"]


class Engine(Protocol):
    """What places the tasks of a cluster on machines."""

    async def reserve(self, tasks: Sequence[Task]) -> dict[Task, Channel]:
        """Start an agent on each machine and return the agent of each task.

        Raises
        ------
        SupervisorError
            A machine cannot be had, or its agent cannot be started.
        """

    async def close(self) -> None:
        """End the agents, and with them every worker."""


ENGINES = {"local": LocalEngine}
"""The engines by the name that ``--engine`` takes."""


def engine_for(name: str) -> Engine:
    """Return a new engine.

    Raises
    ------
    ClusterError
        There is no such engine.
    """
    if name not in ENGINES:
        raise ClusterError(f"unknown engine {name!r}; the engines are {', '.join(ENGINES)}")
    return ENGINES[name]()
