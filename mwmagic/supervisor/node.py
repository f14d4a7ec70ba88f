"""One machine of a cluster: its agent, the ports held there, its warm process."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from mwmagic.engines.channel import Channel
from mwmagic.frameworks.environment import early, forkable
from mwmagic.model.machine import MachineStatus, Warm

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mwmagic.engines import Host
    from mwmagic.model.cluster import Task
    from mwmagic.model.machine import Machine
    from mwmagic.model.messages import Message

__all__ = ["WARM", "Node"]

WARM = "warm"
"""The key of the one warm process that each machine has."""


class Node:
    """A machine with an agent.

    Parameters
    ----------
    host : Host
        The machine.
    channel : Channel
        The connection to its agent.
    listener : callable
        Called with each event of the agent.
    lost : callable
        Called once with this node when the agent is gone.

    Attributes
    ----------
    tasks : tuple of Task
        The tasks on the machine.
    machine : Machine or None
        What it has, once that is known.
    warm : Warm
        Its warm process.
    alive : bool
        Whether its agent is there.
    """

    def __init__(
        self,
        host: Host,
        channel: Channel,
        listener: Callable[[Message], None],
        lost: Callable[[Node], None],
    ) -> None:
        self.host = host
        self.channel = channel
        self.tasks: tuple[Task, ...] = ()
        self.machine: Machine | None = None
        self.warm = Warm()
        self.alive = True
        self._listener = listener
        self._lost = lost
        self._early: dict[str, str] = {}
        self._ports: list[int] = []
        self._waiting: dict[str, Callable[[], None]] = {}
        channel.listener = self._take
        channel.lost = self._gone

    @classmethod
    async def open(
        cls, host: Host, listener: Callable[[Message], None], lost: Callable[[Node], None]
    ) -> Node:
        """Start the agent on a machine; see `Channel.open` for what it raises."""
        return cls(host, await Channel.open(host), listener, lost)

    @property
    def status(self) -> MachineStatus:
        """The machine as it is now."""
        names = tuple(str(task) for task in self.tasks)
        host = self.host
        return MachineStatus(
            host.name, host.address, names, not self.alive, self.warm, self.machine
        )

    def keep(self, ports: Sequence[int]) -> None:
        """Release the ports held so far: `ports` are held in their place."""
        if self._ports:
            self.channel.send("release", ports=self._ports)
        self._ports = list(ports)

    # Processes.

    def warm_up(self, argv: Sequence[str], env: dict[str, str], cwd: str) -> None:
        """Start the warm process, unless there is one."""
        if self.warm.state in ("importing", "ready"):
            return
        self.warm = Warm("importing")
        self._early = early(env)
        self.channel.send("warm", key=WARM, argv=list(argv), env=env, cwd=cwd)

    def start(self, *, env: dict[str, str], **command: Any) -> None:  # noqa: ANN401 - JSON values
        """Start a process: forked from the warm process where there is one like it.

        While that one still imports the framework, the start waits for it: a
        second import beside it would take longer.
        """
        alike = self.warm.state != "off" and forkable(env, self._early)
        if alike and self.warm.state == "importing":
            self._waiting[command["process"]] = partial(self.start, env=env, **command)
            return
        zygote = WARM if alike and self.warm.state == "ready" else None
        self.channel.send("start", env=env, zygote=zygote, **command)

    def withdraw(self, process: str) -> bool:
        """Forget a start that still waits; return whether there was one."""
        return self._waiting.pop(process, None) is not None

    # What the agent says.

    def _take(self, event: Message) -> None:
        if event["type"] == "warmed":
            self._warmed(Warm("ready", seconds=event["seconds"], pid=event["pid"]))
        elif event["type"] == "cooled" or event.get("command") == "warm":  # refused
            self._warmed(Warm("failed", error=event["error"]))
        self._listener(event)

    def _warmed(self, warm: Warm) -> None:
        """Start what waited for the warm process, which is ready now or never will be."""
        self.warm = warm
        waiting, self._waiting = self._waiting, {}
        for start in waiting.values():
            start()

    def _gone(self) -> None:
        self.alive = False
        self._waiting = {}
        self.warm = Warm("failed", error=f"the agent on {self.host.name} ended")
        self._lost(self)
