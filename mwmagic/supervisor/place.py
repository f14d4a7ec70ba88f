"""Where a cluster's tasks are: the agents, the ports held, the warm processes."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mwmagic.worker
from mwmagic.engines import engine_for
from mwmagic.engines.local import AGENT
from mwmagic.frameworks import framework_for
from mwmagic.frameworks.environment import early, forkable
from mwmagic.model.cluster import ClusterSpec
from mwmagic.model.config import CHIEF

from . import orphans
from .environment import task_environment

if TYPE_CHECKING:
    from collections.abc import Callable

    from mwmagic.engines.channel import Channel
    from mwmagic.model.cluster import Task
    from mwmagic.model.config import Config
    from mwmagic.model.messages import Message

__all__ = ["BOOTSTRAP", "Place"]

BOOTSTRAP = Path(mwmagic.worker.__file__).with_name("bootstrap.py")
"""The file that runs a user's file."""

ZYGOTE = AGENT.with_name("zygote.py")
"""The file that imports a framework and is forked from."""

WARM = "warm"
"""The key of the one warm process that each machine has."""


class Place:
    """The machines of a cluster.

    Parameters
    ----------
    config : Config
        The cluster, as asked for.
    listener : callable
        Called with each event of an agent.
    lost : callable
        Called with the tasks of an agent that is gone.

    Attributes
    ----------
    spec : ClusterSpec
        The tasks and their addresses, once `open` has returned.
    warm : dict
        ``seconds`` once a warm process is ready, or ``error``.
    broken : bool
        Whether an agent is gone, and with it the ports that it held.
    """

    def __init__(
        self,
        config: Config,
        listener: Callable[[Message], None],
        lost: Callable[[tuple[Task, ...]], None],
    ) -> None:
        self.config = config
        self.spec: ClusterSpec
        self.warm: dict[str, object] = {}
        self.broken = False
        self._listener = listener
        self._lost = lost
        self._channels: dict[Task, Channel] = {}
        self._early: dict[str, str] = {}
        self._importing: set[Channel] = set()
        self._ready: set[Channel] = set()
        self._waiting: dict[str, Callable[[], None]] = {}

    @property
    def channels(self) -> tuple[Channel, ...]:
        """The agents, each once."""
        return tuple(dict.fromkeys(self._channels.values()))

    def channel(self, task: Task) -> Channel:
        """Return the agent that a task runs under."""
        return self._channels[task]

    async def open(self) -> None:
        """Start the agents and hold a port for each task."""
        self.broken = False
        self.warm = {}
        self._engine = engine_for(self.config.engine)
        self._channels = await self._engine.reserve(self.config.members)
        for channel in self.channels:
            channel.listener = partial(self._take, channel)
            channel.lost = partial(self._gone, channel)
        await self._hold()
        if self.config.warm:
            self._warm_up()

    async def rebind(self) -> None:
        """Hold other ports; start other agents where one was lost.

        Raises
        ------
        SupervisorError, OSError
            No ports or agents can be had; a later call tries again.
        """
        if self.broken:
            await self._reopen()
            return
        old = self.spec
        await self._hold()
        for task, channel in self._homes.items():
            channel.send("release", ports=[int(old.addresses[task].rpartition(":")[2])])

    async def _reopen(self) -> None:
        await self._engine.close()
        try:
            await self.open()
        except BaseException:
            self.broken = True
            raise

    async def close(self) -> None:
        """End the agents, and with them every worker."""
        await self._engine.close()

    async def _hold(self) -> None:
        addresses: dict[Task, str] = {}
        homes = self._homes
        for channel in self.channels:
            tasks = [task for task, own in homes.items() if own is channel]
            ports = await channel.hold(len(tasks))
            addresses |= {
                task: f"{channel.host}:{port}" for task, port in zip(tasks, ports, strict=True)
            }
        self.spec = ClusterSpec.place(list(homes), [addresses[task] for task in homes])

    @property
    def _homes(self) -> dict[Task, Channel]:
        """The agent that holds the port of each task; the owner's is the first's."""
        if not self.config.coordinator:
            return self._channels
        return {CHIEF: self._channels[self.config.members[0]], **self._channels}

    # Warm processes.

    def _warm_up(self) -> None:
        modules = framework_for(self.config.framework).warm
        env = task_environment(self.config, self.spec, self.config.members[0], self.config.env)
        argv = [sys.executable, str(ZYGOTE), str(BOOTSTRAP), *modules]
        self._early = early(env)
        for channel in self.channels:
            self._importing.add(channel)
            channel.send("warm", key=WARM, argv=argv, env=env, cwd=self.config.directory)

    def start(self, task: Task, *, env: dict[str, str], **command: Any) -> None:  # noqa: ANN401
        """Start a task's process: forked from the warm process where there is one like it.

        While that one still imports the framework, the start waits for it: a
        second import beside it would take longer.
        """
        channel = self._channels[task]
        alike = self.config.warm and forkable(env, self._early)
        if alike and channel in self._importing:
            self._waiting[command["process"]] = partial(self.start, task, env=env, **command)
            return
        zygote = WARM if alike and channel in self._ready else None
        channel.send("start", env=env, zygote=zygote, **command)

    def withdraw(self, process: str) -> bool:
        """Forget a start that still waits; return whether there was one."""
        return self._waiting.pop(process, None) is not None

    # What agents say.

    def _take(self, channel: Channel, event: Message) -> None:
        if event["type"] == "warmed":
            self._ready.add(channel)
            self.warm = {"seconds": event["seconds"], "pid": event["pid"]}
            self._imported(channel)
        elif event["type"] == "cooled" or event.get("command") == "warm":  # refused
            self._ready.discard(channel)
            self.warm = {"error": event["error"]}
            self._imported(channel)
        self._listener(event)

    def _imported(self, channel: Channel) -> None:
        """Start what waited for a warm process, which is ready now or never will be."""
        self._importing.discard(channel)
        waiting, self._waiting = self._waiting, {}
        for start in waiting.values():
            start()

    def _gone(self, channel: Channel) -> None:
        self.broken = True
        self.warm = {"error": f"the agent on {channel.host} ended"}
        self._ready.discard(channel)
        orphans.end([other.pid for other in self.channels if other is not channel])
        self._imported(channel)
        self._lost(tuple(task for task, own in self._channels.items() if own is channel))
