"""One machine of a cluster: its agent, the ports held there, its warm process."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from mwmagic.agent.wire import AGENT_LOST, NOT_STARTED
from mwmagic.engines.channel import Channel
from mwmagic.errors import ClusterError, MwmagicError, SupervisorError
from mwmagic.model.machine import Machine, MachineStatus
from mwmagic.words.host import interface_words

from .files import Copy, Disk, Logs
from .preparation import worker_command
from .warm import WarmProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from mwmagic.engines import Host
    from mwmagic.model.cluster import Task
    from mwmagic.model.messages import Message

    from .program import TaskProgram

__all__ = ["Node", "StartCommand"]


@dataclass(frozen=True)
class StartCommand:
    """A process that is to start on a machine; its paths are those of this one.

    Attributes
    ----------
    process
        The key that agents know it by.
    own
        The variables that no other process has.
    log, report
        The files of its output and of its failure.
    credit
        Bytes of its output that may be on their way to the supervisor.
    grace
        Seconds between SIGTERM and SIGKILL.
    """

    process: str
    program: TaskProgram
    own: dict[str, str]
    log: str
    report: str
    credit: int
    grace: float


class Node:
    """A machine with an agent.

    Attributes
    ----------
    address
        Where the other machines reach it.
    looking
        Ends when the agent has said what the machine has, or why it cannot: `machine` or `unknown`.
    warm
        The process that workers are forked from there.
    versions
        The versions of the framework's packages there: None for one that it lacks.
    shares
        For each task's name the variables of its share.
    alive
        Whether its agent is there, and has not said that it leaves.
    why
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
        self.warm = WarmProcess(channel, lambda: bool(self._waiting), listener)
        self._ports: list[int] = []
        self._waiting: dict[str, Callable[[], None]] = {}
        self._bringing: dict[str, asyncio.Task[None]] = {}
        self._logs = Logs(channel, disk.there, self._on_event, shared=disk.shared)
        self._copies: dict[str, Copy] = {}
        channel.listener = self._on_event if host.here else self._logs.on_event
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
            warm=self.warm.status,
            machine=self.machine,
            versions=self.versions,
            load=self._used.get("load"),
            used=self._used.get("memory"),
            why=self.why,
            job=host.job,
            until=host.until,
        )

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
        self.warm.close()
        await self.channel.close()
        self._logs.close()

    # Processes.

    def share(self, shares: dict[str, dict[str, str]]) -> None:
        """Set the tasks' shares of the machine; no process starts before that."""
        self.shares = shares
        self._known = True

    def importing(self, process: str) -> float | None:
        """Return for how many seconds the import has taken that a start waits for, if one does."""
        waits = process in self._waiting and self.warm.importing
        return time.monotonic() - self.warm.since if waits else None

    def start(
        self,
        command: StartCommand,
        environment: Callable[[], dict[str, str]],
        files: Sequence[Path],
    ) -> None:
        """Start a process, forked from the warm process if their environments allow it.

        While the warm process is importing the framework, the start waits for it: a
        second import at the same time would take longer. It also waits until the
        machine is shared out, and for its files where the disk is another one.
        """
        process, program, there = command.process, command.program, self.disk.there
        own = {name: there(value) for name, value in command.own.items()}
        env = {**environment(), **own} if self._known else {}
        warm = self._known and self.warm.status.state != "off"
        cold = self.warm.refusal(env, program.assigned) if warm else None
        alike = self.warm.alive and cold is None
        lacks = self._lacks(process, [program.source, *files])
        if lacks or not self._known or (alike and self.warm.importing):
            self._waiting[process] = partial(self.start, command, environment, files)
            return
        self._logs.begin(process, command.log, command.report)
        launch, zygote = program.launch, self.warm.key if alike else None
        cwd = self.disk.folder(launch.cwd)
        self.warm.launched(process, program.assigned.applied(env), cwd, cold)
        self.channel.send(
            "start",
            process=process,
            argv=[*worker_command(self.channel), launch.script, *launch.args],
            env=env,
            cwd=cwd,
            attributes=dict(launch.attributes) if self.host.here else {},
            log=there(command.log),
            report=there(command.report),
            zygote=zygote,
            credit=command.credit,
            grace=command.grace,
        )

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

    def _on_event(self, event: Message) -> None:
        if event.get("key") == self.warm.key:
            self.warm.on_event(event)
            self.proceed()
        elif event["type"] == "usage":
            self._used = event["machine"]
        elif event.get("reason") == AGENT_LOST:
            self.alive = False  # a restart must not rely on it, even before its line ends
        if event["type"] == "started":
            event = {**event, "cold": self.warm.why(event), "left_out": self.warm.left_out()}
        self._listener(event)

    def _gone(self) -> None:
        self.alive = False
        for task in self._bringing.values():
            task.cancel()
        self._waiting = {}
        self.warm.lost(self.host.name)
        self._logs.flush()
        self._lost(self)
