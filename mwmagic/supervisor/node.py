"""One machine of a cluster: its agent, the ports held there, its warm process."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from mwmagic.agent.wire import AGENT_LOST, NOT_STARTED
from mwmagic.engines.channel import Channel
from mwmagic.errors import ClusterError, MwmagicError, SupervisorError
from mwmagic.model.findings import Finding, Symptom
from mwmagic.model.machine import Machine, MachineStatus, Warm
from mwmagic.words.host import interface_words

from .files import Copy, Disk, Logs
from .warm import REPLACE_SECONDS, WarmProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from mwmagic.engines import Host
    from mwmagic.model.cluster import Task
    from mwmagic.model.messages import Message

    from .assigned import Assigned

__all__ = ["Node"]

IMPORT_SECONDS = 1.0
"""How often it is told that starts wait for an import, of which nothing else tells."""

_PATHS = ("log", "report")
"""The fields of ``start`` that are paths."""


class Node:
    """A machine with an agent.

    Attributes
    ----------
    address : str
        Where the other machines reach it.
    tasks : tuple of Task
        The tasks on the machine.
    machine : Machine or None
        What it has, once `looking` is done.
    looking : asyncio.Task
        Ends when the agent has said what the machine has, or why it cannot.
    unknown : str
        Why it is not known what the machine has.
    versions : dict
        The versions of the framework's packages there: None for one that it lacks.
    shares : dict
        For each task's name the variables of its share.
    alive : bool
        Whether its agent is there, and has not said that it leaves.
    why : str or None
        What the scheduler says about its loss.
    """

    def __init__(
        self,
        host: Host,
        channel: Channel,
        disk: Disk,
        listener: Callable[[Message], None],
        lost: Callable[[Node], None],
    ) -> None:
        self.host = host
        self.address = host.address
        self.versions: dict[str, str | None] = {}
        self.channel = channel
        self.disk = disk
        self.tasks: tuple[Task, ...] = ()
        self.machine: Machine | None = None
        self.unknown = ""
        self.shares: dict[str, dict[str, str]] = {}
        self.alive = True
        self.why: str | None = None
        self._used: dict[str, Any] = {}
        self._known = False
        self._listener = listener
        self._lost = lost
        self._warm = WarmProcess(channel)
        self._cold: dict[str, Finding] = {}
        self._later: asyncio.TimerHandle | None = None
        self._ticking: asyncio.TimerHandle | None = None
        self._ports: list[int] = []
        self._waiting: dict[str, Callable[[], None]] = {}
        self._bringing: dict[str, asyncio.Task[None]] = {}
        self._logs = Logs(channel, disk.there, self._take)
        self._copies: dict[str, Copy] = {}
        channel.listener = self._take if disk.shared else self._logs.take
        channel.lost = self._gone
        self.looking = asyncio.create_task(self._look())

    @classmethod
    async def open(
        cls,
        host: Host,
        listener: Callable[[Message], None],
        lost: Callable[[Node], None],
        silence: float,
        root: Path,
    ) -> Node:
        """Start the agent on a machine.

        See `Channel.open` for `silence`, `Disk` for `root`, and both for what this raises.
        """
        channel = await Channel.open(host, silence=silence)
        try:
            return cls(host, channel, await Disk.of(host, channel, root), listener, lost)
        except BaseException:
            await channel.close()
            raise

    @property
    def status(self) -> MachineStatus:
        """The machine as it is now."""
        names = tuple(str(task) for task in self.tasks)
        host = self.host
        return MachineStatus(
            host.name,
            self.address,
            names,
            lost=not self.alive,
            warm=self.warm,
            machine=self.machine,
            versions=self.versions,
            load=self._used.get("load"),
            used=self._used.get("memory"),
            why=self.why,
            job=host.job,
            until=host.until,
        )

    @property
    def warm(self) -> Warm:
        """How its warm process is."""
        return self._warm.status

    @property
    def port(self) -> int:
        """The first port that is held there."""
        return self._ports[0]

    def choose(self, interface: str) -> None:
        """Have the other machines reach it at the address of a network interface."""
        own = self.channel.addresses
        if not own.get(interface):
            raise ClusterError(
                f"{self.host.name} has no network interface {interface!r} with an address; it has "
                f"{interface_words(own)}"
            )
        address = own[interface][0]
        self.address = f"[{address}]" if ":" in address else address

    async def _look(self) -> None:
        try:
            answer = await self.channel.request("look")
        except SupervisorError as error:
            self.unknown = str(error)
            return
        self.machine = Machine.read(answer["machine"])

    def keep(self, ports: Sequence[int]) -> None:
        """Release the previous ports, which `ports` replace."""
        if self._ports:
            self.channel.send("release", ports=self._ports)
        self._ports = list(ports)

    async def pull(self, path: str) -> None:
        """Fetch what was written to a file there, unless the disk is shared."""
        if not self.disk.shared:
            new = Copy(self.channel, path, self.disk.there(path))
            await self._copies.setdefault(path, new).pull()

    async def close(self) -> None:
        """End the agent and everything it started."""
        for task in (self.looking, *self._bringing.values()):
            task.cancel()
        for timer in (self._ticking, self._later):
            if timer is not None:
                timer.cancel()
        await self.channel.close()

    # Processes.

    def share(self, shares: dict[str, dict[str, str]]) -> None:
        """Set the tasks' shares of the machine; no process starts before that."""
        self.shares = shares
        self._known = True

    def warm_up(
        self,
        command: Callable[[Sequence[str]], list[str]],
        ahead: Sequence[str],
        env: dict[str, str],
        cwd: str,
    ) -> None:
        """Start the warm process, unless there is one; see `WarmProcess.begin`."""
        self._warm.begin(command, ahead, env, cwd)
        self._tick()

    def renew(self) -> None:
        """Start the warm process again, if the latest program could not be forked from it."""
        if self._later is not None:
            self._later.cancel()
            self._later = None
        self._warm.replace()
        self._tick()

    def _tick(self) -> None:
        """Send news each second while starts wait for the warm process to import."""
        if self._ticking is None and self.warm.state == "importing":
            loop = asyncio.get_running_loop()
            self._ticking = loop.call_later(IMPORT_SECONDS, self._ticked)

    def _ticked(self) -> None:
        self._ticking = None
        if self._waiting and self.warm.state == "importing":
            self._listener({"type": "warming"})
        self._tick()

    def importing(self, process: str) -> float | None:
        """Return for how many seconds the import has taken that a start waits for, if one does."""
        waits = process in self._waiting and self.warm.state == "importing"
        return time.monotonic() - self._warm.since if waits else None

    def start(
        self,
        environment: Callable[[], dict[str, str]],
        files: Sequence[Path],
        assigned: Assigned,
        **command: Any,  # noqa: ANN401 - JSON values
    ) -> None:
        """Start a process, forked from the warm process if their environments allow it.

        While the warm process is importing the framework, the start waits for it: a
        second import at the same time would take longer. It also waits until the
        machine is shared out, and for its files where the disk is another one.
        """
        env = environment() if self._known else {}
        cold = (
            self._warm.refusal(env, assigned) if self._known and self.warm.state != "off" else None
        )
        alike = self._warm.alive and cold is None
        lacks = self._lacks(command["process"], files)
        if lacks or not self._known or (alike and self.warm.state == "importing"):
            self._waiting[command["process"]] = partial(
                self.start, environment, files, assigned, **command
            )
            return
        if not self.disk.shared:
            self._logs.begin(command["process"], command["log"], command["report"])
        zygote = self._warm.key if alike else None
        self._warm.launched(assigned.applied(env), command["cwd"], cold)
        if cold is not None:
            self._cold[command["process"]] = cold
            if self._later is None:
                loop = asyncio.get_running_loop()
                self._later = loop.call_later(REPLACE_SECONDS, self.renew)
        there = {name: command[name] and self.disk.there(command[name]) for name in _PATHS}
        self.channel.send("start", **{**command, **there}, env=env, zygote=zygote)

    def _lacks(self, process: str, files: Sequence[Path]) -> bool:
        """Return whether a process's files are still being brought."""
        if self.disk.shared:
            return False
        if process not in self._bringing:
            task = self._bringing[process] = asyncio.create_task(self._bring(process, files))
            task.add_done_callback(lambda _: self.proceed())
        return not self._bringing[process].done()

    async def _bring(self, process: str, files: Sequence[Path]) -> None:
        """Bring a process's files; without them it does not start."""
        try:
            await self.disk.bring(files)
        except MwmagicError as error:
            if self.withdraw(process):
                about = {"command": "start", "process": process, "reason": NOT_STARTED}
                self._listener({"type": "refused", **about, "error": str(error)})

    def withdraw(self, process: str) -> bool:
        """Cancel a start that is still waiting; return whether there was one."""
        return self._waiting.pop(process, None) is not None

    def proceed(self) -> None:
        """Start the waiting processes that need not wait any longer."""
        waiting, self._waiting = self._waiting, {}
        for start in waiting.values():
            start()

    # What the agent says.

    def _take(self, event: Message) -> None:
        if event.get("key") == self._warm.key:
            self._warm.take(event)
            self._tick()
            self.proceed()
        elif event["type"] == "usage":
            self._used = event["machine"]
        elif event.get("reason") == AGENT_LOST:
            self.alive = False  # a restart must not rely on it, even before its line ends
        if event["type"] == "started":
            event = {**event, "cold": self._why(event), "left_out": self._warm.left_out()}
        self._listener(event)

    def _why(self, event: Message) -> Finding | None:
        """Return why a process was not forked from the warm one, if there is one."""
        own, told = self._cold.pop(event["process"], None), event["cold"]
        return own if told is None else Finding(Symptom(told["why"]), detail=told["what"] or None)

    def _gone(self) -> None:
        self.alive = False
        for task in self._bringing.values():
            task.cancel()
        self._waiting = {}
        self._warm.status = Warm("failed", error=f"the agent on {self.host.name} ended")
        self._logs.flush()
        self._lost(self)
