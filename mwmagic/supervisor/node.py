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
from mwmagic.frameworks.environment import differing, is_early, is_settable
from mwmagic.model.findings import Finding, Symptom
from mwmagic.model.machine import Machine, MachineStatus, Warm
from mwmagic.model.ownership import package_of
from mwmagic.words.host import interface_words

from .files import Copy, Disk, Logs
from .preparation import worker_command

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from mwmagic.engines import Host
    from mwmagic.model.cluster import Task
    from mwmagic.model.messages import Message

    from .program import Assigned, TaskProgram

__all__ = ["Node", "StartCommand", "WarmProcess"]

IMPORT_SECONDS = 1.0
"""How often it is reported that starts wait for an import, which nothing else shows."""

REPLACE_SECONDS = 10.0
"""How long after a launch that it was not for another one is begun, if its run is not over before.

Its workers import at first, which would take longer beside the import of the next process.
"""


@dataclass(frozen=True)
class StartCommand:
    """A process that is to start on a machine; its paths are those of this one."""

    process: str
    """The key that agents know it by."""
    program: TaskProgram
    own: dict[str, str]
    """The variables that no other process has."""
    log: str
    report: str
    """The files of its output and of its failure."""
    credit: int
    """Bytes of its output that may be on their way to the supervisor."""
    grace: float
    """Seconds between SIGTERM and SIGKILL."""


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
    def away(self) -> str | None:
        """Its name, unless it is this machine."""
        return None if self.host.here else self.host.name

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
        second import at the same time would take longer. A program that does not compile
        imports nothing, so it does not wait. A start also waits until the machine is shared
        out, and for its files where the disk is another one.
        """
        process, program, there = command.process, command.program, self.disk.there
        own = {name: there(value) for name, value in command.own.items()}
        env = {**environment(), **own} if self._known else {}
        warm = self._known and self.warm.status.state != "off"
        cold = self.warm.refusal(env, program.assigned) if warm else None
        alike = self.warm.alive and cold is None and not (self.warm.importing and program.broken)
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


class WarmProcess:
    """Has a machine's agent keep a process that workers are forked from.

    `key` is the name by which the agent knows it, and `since` when its imports began.
    """

    def __init__(
        self, channel: Channel, waits: Callable[[], bool], listener: Callable[[Message], None]
    ) -> None:
        self.status = Warm()
        self.key = ""
        self.since = 0.0
        self._channel = channel
        self._waits = waits
        self._listener = listener
        self._command: Callable[[Sequence[str]], list[str]] = lambda _: []
        self._ahead: tuple[str, ...] = ()
        self._env: Mapping[str, str] = {}
        self._cwd = ""
        self._reads: frozenset[str] = frozenset()
        self._sets: dict[str, str] = {}
        self._left: dict[str, bool] = {}
        self._count = 0
        self._wanted: tuple[Mapping[str, str], str] | None = None
        self._latest: tuple[Mapping[str, str], str] | None = None
        self._cold: dict[str, Finding] = {}
        self._replacing: asyncio.TimerHandle | None = None
        self._ticking: asyncio.TimerHandle | None = None

    @property
    def alive(self) -> bool:
        """Whether it is there, or will be."""
        return self.status.state in ("importing", "ready")

    @property
    def importing(self) -> bool:
        """Whether it imports, which starts wait for."""
        return self.status.state == "importing"

    def begin(
        self,
        command: Callable[[Sequence[str]], list[str]],
        ahead: Sequence[str],
        env: Mapping[str, str],
        cwd: str,
    ) -> None:
        """Start it, unless it is there."""
        if not self.alive:
            self._command, self._ahead = command, tuple(ahead)
            self._begin(env, cwd)

    def _begin(self, env: Mapping[str, str], cwd: str) -> None:
        self._count += 1
        self.key = f"warm-{self._count}"
        self.status = Warm("importing")
        self.since = time.monotonic()
        self._env, self._cwd, self._wanted = env, cwd, None
        self._reads, self._sets = frozenset(), {}
        argv = self._command(self._ahead)
        self._channel.send("warm", key=self.key, argv=argv, env=dict(env), cwd=cwd)
        self._tick()

    def _tick(self) -> None:
        """Send news each second while starts wait for the import."""
        if self._ticking is None and self.importing:
            loop = asyncio.get_running_loop()
            self._ticking = loop.call_later(IMPORT_SECONDS, self._ticked)

    def _ticked(self) -> None:
        self._ticking = None
        if self._waits() and self.importing:
            self._listener({"type": "warming"})
        self._tick()

    def refusal(self, env: Mapping[str, str], assigned: Assigned) -> Finding | None:
        """Return why a worker is not to be forked from it."""
        if self.status.state == "failed":
            return Finding(Symptom.COLD_FAILED, detail=self.status.error)
        names = differing(assigned.applied(env), self._env, self._reads, self._sets)
        if names:
            return Finding(Symptom.COLD_VARIABLE, detail=", ".join(names))
        for one in (*assigned.late, *assigned.unknown):
            if one.name is None or (is_early(one.name, self._reads) and is_settable(one.name)):
                return Finding(Symptom.COLD_UNKNOWN, at=one.line, detail=one.name)
        return None

    def launched(self, process: str, env: Mapping[str, str], cwd: str, why: Finding | None) -> None:
        """Note with what environment a process imports that starts, and why it is not forked."""
        env = {name: env[name] for name in env if name in self._env or not name.startswith("MWM")}
        self._latest = (env, cwd)
        if why is not None and why.symptom is Symptom.COLD_VARIABLE:
            self._wanted = self._latest
        if why is not None:
            self._cold[process] = why
            if self._replacing is None:
                loop = asyncio.get_running_loop()
                self._replacing = loop.call_later(REPLACE_SECONDS, self.renew)

    def why(self, event: Message) -> Finding | None:
        """Return why a process that started was not forked from it, if there was one."""
        own, told = self._cold.pop(event["process"], None), event["cold"]
        return own if told is None else Finding(Symptom(told["why"]), detail=told["what"] or None)

    def left_out(self) -> Finding | None:
        """Return what it lacks of what it was to import, each module once."""
        new = [why for why, told in self._left.items() if not told]
        self._left = dict.fromkeys(self._left, True)
        return Finding(Symptom.LEFT_OUT, detail="; ".join(new)) if new else None

    def _leave_out(self, *whys: str) -> None:
        for why in whys:
            self._left.setdefault(why.partition("\n")[0], False)

    def renew(self) -> None:
        """Start it again for the latest program that could not be forked from it, if any."""
        if self._replacing is not None:
            self._replacing.cancel()
            self._replacing = None
        if self._wanted is not None and self.alive:
            self._channel.send("cool", key=self.key)
            self._begin(*self._wanted)

    def lost(self, host: str) -> None:
        """Note that it ended with its agent."""
        self.status = Warm("failed", error=f"the agent on {host} ended")

    def close(self) -> None:
        """Stop the timers."""
        for timer in (self._ticking, self._replacing):
            if timer is not None:
                timer.cancel()

    def on_event(self, event: Message) -> None:
        """Take what becomes of it; start another one if that can be better."""
        if event["type"] == "warmed":
            self.status = Warm("ready", seconds=event["seconds"], pid=event["pid"])
            self._reads, self._sets = frozenset(event["reads"]), event["sets"]
            self._leave_out(*event["left"])
            return
        was, self.status = self.status, Warm("failed", error=event.get("error"))
        unfit = event.get("module")
        if unfit is not None:
            self._leave_out(event["error"])
            without = package_of(unfit)
            self._ahead = tuple(name for name in self._ahead if package_of(name) != without)
            self._begin(self._env, self._cwd)
        elif event["type"] == "stale":
            self._begin(*(self._latest or (self._env, self._cwd)))
        elif was.state == "ready":  # it was killed, as the kernel does where memory is short
            self._begin(self._env, self._cwd)
