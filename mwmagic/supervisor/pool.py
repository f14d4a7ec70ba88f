"""Where a cluster's tasks are: the machines, the ports held there, the warm processes."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import time
import traceback
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from mwmagic.agent.system import LIBC
from mwmagic.engines import PreparingEngine, engine_for
from mwmagic.engines.link import within
from mwmagic.errors import ClusterError, MwmagicError, SupervisorError
from mwmagic.frameworks import framework_for
from mwmagic.model.cluster import CHIEF, ClusterSpec
from mwmagic.model.findings import Finding, Remark, Symptom
from mwmagic.model.machine import Fetch, Placing, spread
from mwmagic.model.values import counted

from .node import Node
from .preparation import (
    Rendezvous,
    check_versions,
    environment,
    find_versions,
    prepare,
    start_on,
    wants_gpus,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Sequence

    from mwmagic.engines import Engine, Host
    from mwmagic.model.cluster import Task
    from mwmagic.model.machine import MachineStatus, Obstacle
    from mwmagic.model.messages import Message, Start
    from mwmagic.model.options import ClusterOptions

    from .node import StartCommand

__all__ = ["Loss", "MachinePool", "end_orphans"]

GPU_LOOK_SECONDS = 2.0
"""How long a cluster's start waits to learn a machine's GPUs, if no number was requested."""

TOLD_LIMIT = 4
"""How many of the machines that could not be reached are named with their errors."""

REGAIN_SECONDS = 1.0
"""Pause before machines that were lost are tried again, if there are no others; then doubled."""

REGAIN_LONGEST_SECONDS = 15.0
"""The longest pause."""

REGAIN_LIMIT_SECONDS = 300.0
"""For how long they are tried."""

SHOWN_SECONDS = 1.0
"""How long machines may take to answer before the run's state shows that it waits for them."""

WHY_SECONDS = 0.4
"""Time limit for the scheduler to explain a loss: less than the gang waits for a first cause."""

PR_GET_CHILD_SUBREAPER = 37

_LOOKS = 200
"""Looks for orphans before the remaining ones are given up."""

_PAUSE_SECONDS = 0.005
"""Seconds between two looks."""


@dataclass(frozen=True)
class Loss:
    """A machine that was lost, noticed at `time` in monotonic seconds.

    `why` is what the scheduler says about it; `here` marks this machine, of which only the agent
    can be lost.
    """

    host: str
    tasks: tuple[Task, ...]
    time: float
    why: str | None = None
    here: bool = False


def _together(errors: Sequence[BaseException]) -> BaseException:
    """Return one error for machines that could not be reached."""
    ours = [one for one in errors if isinstance(one, MwmagicError)]
    if len(errors) == 1 or len(ours) < len(errors):
        return next((one for one in errors if one not in ours), errors[0])
    told = [str(one) for one in ours[:TOLD_LIMIT]]
    others = len(ours) - len(told)
    return SupervisorError(
        "\n".join([*told, *([f"and {counted(others, 'other machine')}"] * (others > 0))])
    )


class MachinePool:
    """The machines of a cluster.

    Attributes
    ----------
    spec
        The tasks and their addresses, once `open` has returned.
    placing
        Whether it has its machines.
    settled
        Whether it has had its machines, and so has a `spec`.
    declared
        The cluster, as declared and since updated, and what its owner knows.
    """

    def __init__(
        self,
        start: Start,
        listener: Callable[[Message], None],
        lost: Callable[[Loss], None],
        changed: Callable[[], None],
        engine: Engine | None = None,
    ) -> None:
        self.declared = start
        self.spec: ClusterSpec
        self._broken = False
        self.placing = Placing()
        self.settled = False
        self._engine = engine or engine_for(start.options)
        self._listener = listener
        self._lost = lost
        self._changed = changed
        self._rendezvous = Rendezvous(named=bool(start.options.hosts))
        self._nodes: list[Node] = []
        self._of: dict[Task, Node] = {}
        self._avoid: set[str] = set()
        self._missed: frozenset[str] = frozenset()  # those that could not be reached just now
        self._unused: dict[str, Remark] = {}
        self._blocked: Counter[str] = Counter()  # how often they could not connect to others
        self._confirmed = 0.0  # when they were last asked whether they are there
        self._fenced = 0.0  # when nothing runs any more on the machines that fell silent
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def broken(self) -> bool:
        """Whether an agent is gone or leaves, and with it the ports that it held."""
        return self._broken or not all(node.alive for node in self._nodes)

    @property
    def options(self) -> ClusterOptions:
        """The declaration as it is now: some of it can be updated."""
        return self.declared.options

    @property
    def machines(self) -> tuple[MachineStatus, ...]:
        """The machines as they are now."""
        return tuple(node.status for node in self._nodes)

    @property
    def unused(self) -> tuple[Remark, ...]:
        """What kept machines from being used in place of lost ones."""
        return tuple(self._unused.values())

    @property
    def shares(self) -> dict[str, dict[str, str]]:
        """For each task's name the variables of its share of its machine."""
        return {name: share for node in self._nodes for name, share in node.shares.items()}

    def node(self, task: Task) -> Node:
        """Return the machine that a task is on."""
        return self._of[task]

    def fetch(self, task: Task, cwd: str, path: str, to: Path) -> Fetch:
        """Return what is to be fetched; a relative path is below where a task runs in `cwd`."""
        disk = self._of[task].disk
        there = os.path.normpath(Path(disk.folder(cwd), path))
        here = disk.shared and Path(there) == to and to.exists()
        return Fetch(str(task), there, str(to), state="here" if here else "going")

    async def open(self) -> None:
        """Start the agents and hold a port for each task."""
        try:
            await self._settle()
        except BaseException:
            await self.close()
            raise

    def doubtful(self, since: float) -> bool:
        """Return whether a machine is lost, or may have been cut off since a moment."""
        remote = any(not node.host.here for node in self._nodes)
        return self.broken or (remote and self._confirmed < since)

    async def confirm(self, since: float) -> None:
        """Wait until each machine has answered a ping sent after a moment, or is lost.

        Those that answer but do not reach each other are parted by the next `rebind`.
        """
        self._confirmed = time.monotonic()
        asked = {
            asyncio.create_task(node.channel.answers(since)): node.host.name for node in self._nodes
        }
        before = self.placing
        try:
            _, silent = await asyncio.wait(asked, timeout=SHOWN_SECONDS) if asked else ((), ())
            if silent:
                names = ", ".join(sorted(asked[one] for one in silent))
                self.placing = Placing(message=f"no answer from {names} yet")
                self._changed()
                await asyncio.wait(silent)
        finally:
            self.placing = before
            for one in asked:
                one.cancel()
        self._part(await self.apart())

    async def apart(self) -> Sequence[Obstacle]:
        """Return which machines cannot connect to each other now, if they are several."""
        if not self.broken and len(self._nodes) > 1:
            with suppress(SupervisorError):  # one is lost just now
                return await self._rendezvous.again(self._nodes)
        return ()

    def _part(self, obstacles: Sequence[Obstacle]) -> None:
        """Avoid the machine that most often could not connect; of equals the last one."""
        if obstacles:
            self._blocked.update(one for pair in obstacles for one in (pair.source, pair.target))
            names = [node.host.name for node in reversed(self._nodes)]
            self._missed = frozenset({max(names, key=lambda name: self._blocked[name])})
            self._avoid |= self._missed
            self._broken = True

    async def rebind(self) -> None:
        """Hold other ports; find other machines where one was lost."""
        if self.broken:
            await self._settle()
        else:
            await self._hold()

    async def close(self) -> None:
        """End the agents, and with them every worker, and give the machines back."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*(node.close() for node in self._nodes))
        await self._engine.release()

    # Placing.

    async def _settle(self) -> None:
        """Get machines, and tell how that goes."""
        self.placing = Placing()
        try:
            await (self._regain() if self.settled else self._get())
        except BaseException as error:
            kind = type(error) if isinstance(error, MwmagicError) else SupervisorError
            self.placing = Placing("failed", kind=kind.__name__, error=str(error))
            raise
        self.placing = replace(self.placing, state="placed")
        self.settled = True

    async def _regain(self) -> None:
        """Get machines in place of lost ones, or wait for those if there are no others."""
        pause, until = REGAIN_SECONDS, time.monotonic() + REGAIN_LIMIT_SECONDS
        while True:
            avoided = frozenset(self._avoid)
            try:
                return await self._get()
            except (MwmagicError, OSError) as error:
                # One that was there, and is asked for ports, may be lost just now.
                lost = {node.host.name for node in self._nodes if not node.alive}
                self._missed |= lost - avoided
                if not self._missed or (self._missed <= avoided and time.monotonic() > until):
                    raise
                self._notify(f"{error}; trying again")
            if self._missed <= avoided:  # the engine had no others
                await asyncio.sleep(pause)
                pause = min(2 * pause, REGAIN_LONGEST_SECONDS)

    async def _get(self) -> None:
        """Get machines from the engine, with an agent and ports on each."""
        self._broken, self._missed = True, frozenset()
        self._avoid |= {node.host.name for node in self._nodes if not node.alive}
        members = self.options.members
        avoid = frozenset(self._avoid)
        hosts = await self._engine.allocate(members, avoid=avoid, notify=self._notify)
        shares = spread(members, [host.slots for host in hosts])
        used = [(host, tasks) for host, tasks in zip(hosts, shares, strict=True) if tasks]
        await self._connect([host for host, _ in used])
        self._of = {}
        for node, (_, tasks) in zip(self._nodes, used, strict=True):
            node.tasks = tasks
            self._of |= dict.fromkeys(tasks, node)
            if self.options.interface is not None:
                node.choose(self.options.interface)
        await self._hold()
        await self._compare()
        await self._share_out()
        await asyncio.sleep(self._fenced - time.monotonic())  # never beside an old attempt
        gone = [node.host.name for node in self._nodes if not node.alive]
        if gone:  # nothing would report that a task cannot start there
            raise SupervisorError(f"the agent on {gone[0]} ended")
        self._broken = False

    def _notify(self, words: str) -> None:
        self.placing = replace(self.placing, message=words)
        self._changed()

    async def _connect(self, hosts: Sequence[Host]) -> None:
        """Have an agent run on exactly these machines; existing ones are kept."""
        kept = {node.host: node for node in self._nodes if node.alive and node.host in hosts}
        await asyncio.gather(*(node.close() for node in self._nodes if node.host not in kept))
        new = [host for host in hosts if host not in kept]
        opened = await asyncio.gather(*map(self._open, new), return_exceptions=True)
        nodes = {one.host: one for one in opened if isinstance(one, Node)}
        have = kept | nodes
        self._nodes = [have[host] for host in hosts if host in have]
        failed = {
            host.name: one
            for host, one in zip(new, opened, strict=True)
            if isinstance(one, BaseException)
        }
        self._missed = frozenset(failed)
        for name in self._missed - self._avoid if self.settled else ():
            found = Finding(Symptom.HOST_UNUSED, host=name, detail=str(failed[name]))
            self._unused[name] = Remark(finding=found)
        for host in have:
            self._unused.pop(host.name, None)
        self._avoid |= self._missed
        if failed:
            raise _together(list(failed.values()))

    async def _open(self, host: Host) -> Node:
        silence = 0.0 if host.here else self.options.lease
        root = self.options.root
        node = await Node.open(host, self._listener, self._gone, silence, root)
        node.channel.lease.on_unresponsive = self._unresponsive
        return node

    async def _hold(self) -> None:
        """Hold a port for each task, and only then release the old ones."""
        homes = {node: self._homed(node) for node in self._nodes}
        held = await asyncio.gather(*(node.channel.hold(len(homes[node])) for node in homes))
        addresses: dict[Task, str] = {}
        for (node, tasks), ports in zip(homes.items(), held, strict=True):
            node.keep(ports)
            at = [f"{node.address}:{port}" for port in ports]
            addresses |= dict(zip(tasks, at, strict=True))
        self.spec = ClusterSpec(tuple(addresses.items()))

    def _homed(self, node: Node) -> list[Task]:
        """Return the tasks whose ports a node holds; the owner's is beside the first task's."""
        first = self.options.coordinator and node is self._of[self.options.members[0]]
        return [CHIEF, *node.tasks] if first else list(node.tasks)

    async def _compare(self) -> None:
        """Refuse machines that do not fit together, before anything starts on them."""
        framework = framework_for(self.options.framework)
        new = [node for node in self._nodes if not node.host.here and not node.versions]
        asked = [find_versions(node, framework, start_on(self.declared, node).env) for node in new]
        try:
            await asyncio.gather(self._rendezvous.check(self._nodes), *asked)
        except ClusterError:
            self._part(self._rendezvous.obstacles)
            raise
        check_versions(self._nodes, framework)

    # Shares and processes.

    async def _share_out(self) -> None:
        """Share each machine out between its tasks, and warm it up.

        Starts on a machine whose driver hangs wait for it, but the cluster does
        not, unless it asks for GPUs.
        """
        ready = [self._spawn(self._prepare(node)) for node in self._nodes]
        limit = None if wants_gpus(self.options) else GPU_LOOK_SECONDS
        done, _ = await asyncio.wait(ready, timeout=limit)
        for one in done:
            one.result()

    async def _prepare(self, node: Node) -> None:
        await asyncio.wait([node.looking])
        if node.alive:
            prepare(self.declared, node, self.spec, alone=len(self._nodes) == 1)
            self._changed()

    def start(self, task: Task, command: StartCommand) -> None:
        """Start a task's process, as soon as its machine is ready."""
        node, launch = self._of[task], command.program.launch
        env = launch.env if node.host.here else {**self.options.env, **launch.given}
        node.start(
            command,
            lambda: environment(self.declared, node, self.spec, task, env),
            [self.options.root / name for name in self.options.files],
        )

    def renew(self) -> None:
        """Start warm processes again that the latest run's program could not be forked from."""
        for node in self._nodes:
            node.warm.renew()

    def withdraw(self, process: str) -> bool:
        """Cancel a start that is still waiting; return whether there was one."""
        return any(node.withdraw(process) for node in self._nodes)

    # Losses.

    async def why(self, task: Task) -> str | None:
        """Return why a task's machine is taken away, if a scheduler ends its workers there.

        Its agent may end much later: a restart does not wait for that.
        """
        node = self._of[task]
        why = await self._ask(node)
        if why is not None:
            node.why = why
            self._broken = True
            self._avoid.add(node.host.name)
        return why

    def _unresponsive(self) -> None:
        """Let the engine prepare for the loss of machines that do not answer."""
        if isinstance(self._engine, PreparingEngine):
            names = {node.host.name for node in self._nodes if node.channel.lease.unresponsive}
            try:
                self._engine.prepare(names)
            except Exception:  # noqa: BLE001 - another package's engine: it is for speed alone
                traceback.print_exc()

    def _gone(self, node: Node) -> None:
        self._avoid.add(node.host.name)
        self._fenced = max(self._fenced, node.channel.lease.fenced)
        if node.host.here:
            own = [other.channel.pid for other in self._nodes if other is not node]
            end_orphans([pid for pid in own if pid is not None] + list(self._engine.helpers))
        self._spawn(self._explain(node, time.monotonic()))

    def _spawn(self, coroutine: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Start work that `close` cancels."""
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _explain(self, node: Node, moment: float) -> None:
        """Report a loss, with the scheduler's explanation if it comes in time."""
        node.why = why = await self._ask(node) or node.why or self._silence(node)
        self._lost(Loss(node.host.name, node.tasks, moment, why, here=node.host.here))

    @staticmethod
    def _silence(node: Node) -> str | None:
        """Return for how long another machine did not answer, if it was given up for that."""
        return None if node.host.here else node.channel.lease.no_answer or None

    async def _ask(self, node: Node) -> str | None:
        """Return the scheduler's explanation of a machine's loss, if it comes in time."""
        try:
            return await within(WHY_SECONDS, self._engine.why(node.host))
        except asyncio.TimeoutError:
            pass
        except Exception:  # noqa: BLE001 - another package's engine: the loss is reported all the same
            traceback.print_exc()
        return None


def end_orphans(agents: Collection[int]) -> None:
    """Kill and reap the orphans that this process adopted, if it adopts any.

    A lost agent's workers die with it, but processes that they started in sessions of their own do
    not. The kernel hands those to the nearest ancestor that asked for orphans.
    """
    for _ in range(_LOOKS if _adopts() else 0):
        orphans = [child.pid for child in psutil.Process().children() if child.pid not in agents]
        if not orphans:
            return
        for pid in orphans:
            with suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, os.WNOHANG)
        time.sleep(_PAUSE_SECONDS)


def _adopts() -> bool:
    answer = ctypes.c_int()
    LIBC.prctl(PR_GET_CHILD_SUBREAPER, ctypes.byref(answer), 0, 0, 0)
    return bool(answer.value)
