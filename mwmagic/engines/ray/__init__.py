"""The Ray engine: nodes of a Ray cluster, in a placement group.

`driver` is the bridge: the process that imports Ray.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import select
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from mwmagic.engines import Host, agent_command
from mwmagic.engines.link import LineReader, Stderr
from mwmagic.errors import ClusterError
from mwmagic.model.machine import spread

from . import driver
from .driver import DATAGRAM_BYTES, UNDO_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from mwmagic.engines.link import Link
    from mwmagic.model.cluster import Task
    from mwmagic.model.options import ClusterOptions

__all__ = ["RayEngine"]

RESOURCES_EXAMPLE = "--engine ray -- CPU=4 memory=8e9"

SPARE_SECONDS = 10.0
"""How much longer than a lease other nodes are kept for the next allocation: there may be none."""

DRIVER_MARGIN_SECONDS = 2.0
"""How much longer than it should the process may take to end before it is killed."""

STRAY_SECONDS = 0.05
"""How much later than an agent's end a packet about it may be read: it comes another way."""


@dataclass(eq=False)
class _Thread:
    """A node of an allocation, and the link to its agent."""

    bridge: Bridge
    number: int
    node: str
    link: SocketLink | None = None

    @property
    def broken(self) -> bool:
        """Whether there was a link that has ended."""
        return self.link is not None and not self.link.alive


@dataclass(frozen=True)
class RayHost(Host):
    """A node of Ray, as offered by the engine."""

    # Another allocation's actor on the same node is another agent.
    thread: _Thread = field(kw_only=True)

    async def connect(self) -> Link:
        """Have the bridge join a link to the agent."""
        self.thread.link = await self.thread.bridge.join(self.thread.number)
        return self.thread.link


class RayEngine:
    """Nodes of a Ray cluster; see `mwmagic.engines.Engine`.

    A placement group holds them, and ends with the process that asked for it: that is the
    bridge, which imports Ray, as this process does not.
    """

    takes: ClassVar[frozenset[str]] = frozenset(
        {"address", "nodes", "python", "scheduler", "interface", "files", "lease", "hold"}
    )

    def __init__(self, options: ClusterOptions) -> None:
        check_ray()
        self.options = options
        self._resources = _resources(options)
        self._bridge: Bridge | None = None
        self._hosts: list[RayHost] = []
        self._tasks = 0
        self._bad: set[str] = set()
        self._names: dict[str, str] = {}

    @property
    def helpers(self) -> Collection[int]:
        """The id of the bridge."""
        return self._bridge.pids if self._bridge else ()

    async def allocate(
        self, tasks: Sequence[Task], *, avoid: Collection[str], notify: Callable[[str], None]
    ) -> Sequence[Host]:
        """Return nodes of a new placement group, without those that were lost."""
        self._bad |= self._lost(avoid)
        self._tasks = len(tasks)
        if self._bridge is None or not self._bridge.alive:
            await self.release()
            self._bridge = Bridge()
        try:
            nodes = await self._asked(self._bridge, notify)
        except BaseException:
            await self.release()
            raise
        self._hosts = [self._host(self._bridge, *one, len(tasks)) for one in nodes.items()]
        self._bad -= {host.thread.node for host in self._hosts}  # Ray had no others for long
        notify(_granted(self._hosts, tasks))
        return self._hosts

    def _lost(self, avoid: Collection[str]) -> set[str]:
        """Return the ids of nodes that were lost, but not of those lost with the bridge.

        The nodes of an earlier allocation were lost when that was given back.
        """
        if self._bridge is None or not self._bridge.alive:
            return set()
        return {h.thread.node for h in self._hosts if h.name in avoid and h.thread.broken}

    def prepare(self, unresponsive: Collection[str]) -> None:
        """Have a placement group without the unresponsive nodes ready, as long as there are any.

        An actor starts in about a second, which then passes during the lease.
        """
        nodes = {host.thread.node for host in self._hosts if host.name in unresponsive}
        keep = self.options.lease + SPARE_SECONDS
        spare = {**self._request(self._bad | nodes), "keep": keep} if nodes else None
        if self._bridge is not None:
            self._bridge.prepare(spare)

    async def _asked(
        self, bridge: Bridge, notify: Callable[[str], None]
    ) -> dict[int, dict[str, Any]]:
        """Ask Ray for nodes."""
        request = self._request(self._bad)
        bundles = request["bundles"]
        kind = "node" if self.options.nodes else "task"
        what = f"{len(bundles)} {kind}{'s' * (len(bundles) > 1)}, {_shown(bundles[0])} each"
        try:
            return await bridge.ask(request, lambda packet: notify(_waiting(what, packet)))
        except ClusterError as error:
            raise ClusterError(f"Ray at {request['address']!r}: {error}") from None

    def _request(self, avoid: Collection[str]) -> dict[str, Any]:
        """Return a request for a bundle of resources for each task, or for each of `--nodes`."""
        nodes = self.options.nodes
        share = -(-self._tasks // nodes) if nodes else 1
        bundle = {name: number * share for name, number in self._resources.items()}
        return {
            "address": self.options.address or "auto",
            "bundles": [bundle] * (nodes or self._tasks),
            "strategy": "STRICT_SPREAD" if nodes else "PACK",
            "avoid": sorted(avoid),
            "command": agent_command(self._python),
        }

    @property
    def _python(self) -> str:
        return self.options.python or sys.executable

    def _host(self, bridge: Bridge, number: int, node: Mapping[str, Any], tasks: int) -> RayHost:
        share = -(-tasks // self.options.nodes) if self.options.nodes else 1
        address = node["address"]
        return RayHost(
            self._name(node),
            f"[{address}]" if ":" in address else address,
            agent_command(self._python),
            slots=node["bundles"] * share,
            hint=f"Is there a {self._python} on the nodes? --python says which to use there",
            stderr=bridge.errors[number],
            thread=_Thread(bridge, number, node["id"]),
        )

    def _name(self, node: Mapping[str, Any]) -> str:
        """Return a node's host name, with its id if another node has or had the same."""
        others = {name for one, name in self._names.items() if one != node["id"]}
        host = node["name"] or node["address"]
        return self._names.setdefault(
            node["id"], f"{host}-{node['id'][:8]}" if host in others else host
        )

    async def why(self, host: Host) -> str | None:
        """Return what Ray says about the actor that held the agent, or about the bridge's end."""
        if not isinstance(host, RayHost):
            return None
        thread = host.thread
        if not thread.bridge.alive:
            return f"the process that talks to Ray ended: {thread.bridge.words}".rstrip(": ")
        return host.stderr.last or None

    async def release(self) -> None:
        """Give the nodes back."""
        bridge, self._bridge = self._bridge, None
        self._hosts = []
        if bridge is not None:
            await bridge.close()


def _resources(options: ClusterOptions) -> dict[str, float]:
    """Return what each task needs: a CPU, and what the options say."""
    found: dict[str, float] = {"CPU": options.threads or 1, "GPU": options.gpus or 0}
    for word in options.scheduler:
        name, _, number = word.partition("=")
        try:
            value = float(number)
        except ValueError:
            value = -1.0
        if not name or not 0 <= value < math.inf:
            raise ClusterError(
                f"{word!r} is not a resource of Ray; write what each task needs as in "
                f"{RESOURCES_EXAMPLE}"
            )
        found[name] = value
    needed = {name: number for name, number in found.items() if number}
    if not needed:
        raise ClusterError("each task needs a resource of Ray, such as CPU=1")
    return needed


def _shown(bundle: Mapping[str, float]) -> str:
    return " and ".join(f"{number:g} {name}" for name, number in bundle.items())


def _waiting(what: str, packet: Mapping[str, Any]) -> str:
    """Return in words what Ray says while it grants nothing."""
    have = [f"{free:g} of {total:g} {name}" for name, (free, total) in packet["have"].items()]
    return f"Ray waits ({packet['reason']}) for {what}; free: {', '.join(have)}"


def _granted(hosts: Sequence[Host], tasks: Sequence[Task]) -> str:
    """Return in words what was granted."""
    shares = spread(tasks, [host.slots for host in hosts])
    placed = [f"{host.name} ({len(own)})" for host, own in zip(hosts, shares, strict=True)]
    return f"nodes of Ray and their tasks: {', '.join(placed)}"


def check_ray() -> None:
    """Refuse the engine where there is no Ray; this does not import it."""
    if find_spec("ray") is None:
        raise ClusterError(
            f"the engine ray needs Ray, which {sys.executable} does not have; install the version "
            'that the cluster runs: pip install "mwmagic[ray]" "ray==VERSION"'
        )


def _hung_up(end: socket.socket) -> bool:
    poll = select.poll()
    poll.register(end, select.POLLRDHUP)
    return bool(poll.poll(0))


class _Protocol(asyncio.Protocol):
    """Ends both ways together, and without an error: the bridge may be killed at any time."""

    def __init__(self, events: LineReader) -> None:
        self._events = events
        self.ended = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        self._events.feed(data)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the end says it
        self._events.feed(b"")
        if not self.ended.done():
            self.ended.set_result(None)


class SocketLink:
    """A socket that is joined to an agent; see `mwmagic.engines.link.Link`."""

    pid: int | None = None

    def __init__(
        self,
        events: LineReader,
        transport: asyncio.Transport,
        ended: asyncio.Future[None],
    ) -> None:
        self.events = events
        self._transport = transport
        self._ended = ended
        self._closed = False

    @classmethod
    async def open(cls, end: socket.socket) -> SocketLink:
        """Return the link over a connected socket."""
        loop, events = asyncio.get_running_loop(), LineReader()
        protocol = _Protocol(events)
        transport, _ = await loop.create_unix_connection(lambda: protocol, sock=end)
        return cls(events, transport, protocol.ended)

    @property
    def alive(self) -> bool:
        """Whether the connection has not ended."""
        return not self._ended.done()

    def write(self, data: bytes) -> None:
        """Write to the agent; see `Link`."""
        if not self._closed and self.alive:
            self._transport.write(data)

    def close(self) -> None:
        """Close the agent's standard input."""
        if not self._closed and self.alive:
            self._transport.write_eof()
        self._closed = True

    def wake(self) -> None:
        """Do nothing: no process of ours carries the link."""

    def kill(self) -> None:
        """End the connection."""
        self._transport.abort()

    async def wait(self) -> None:
        """Wait until the connection has ended, and for the packet that says why."""
        await asyncio.shield(self._ended)
        await asyncio.sleep(STRAY_SECONDS)


class Bridge:
    """The process that talks to Ray, and what it says.

    `errors` has what agents wrote to their standard errors, and Ray's word on their ends, by the
    numbers of the nodes.
    """

    def __init__(self) -> None:
        self.errors: dict[int, Stderr] = {}
        self._stderr = Stderr()
        self._control: socket.socket | None = None
        self._starting: asyncio.Task[asyncio.subprocess.Process] | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._nodes: asyncio.Future[dict[int, dict[str, Any]]] = (
            asyncio.get_running_loop().create_future()
        )
        self._pending: Callable[[dict[str, Any]], None] = lambda _: None

    @property
    def pids(self) -> set[int]:
        """The id of the process, if it runs."""
        process = self._process
        return {process.pid} if process is not None and process.returncode is None else set()

    @property
    def alive(self) -> bool:
        """Whether the process runs: its end closes this socket first, and then the links."""
        return self._control is not None and not _hung_up(self._control)

    @property
    def words(self) -> str:
        """What the process last said."""
        return self._stderr.last

    async def ask(
        self, request: dict[str, Any], pending: Callable[[dict[str, Any]], None]
    ) -> dict[int, dict[str, Any]]:
        """Ask Ray for nodes, in place of those that it gave before, and wait for them."""
        self._pending = pending
        self._nodes = asyncio.get_running_loop().create_future()
        control = self._control or await self._open()
        with suppress(OSError):  # it ended, which is noticed
            control.send(json.dumps({**request, "path": _paths()}).encode())
        return await self._nodes

    def prepare(self, request: dict[str, Any] | None) -> None:
        """Have nodes ready that are about to be asked for, or give them back."""
        if self._control is not None:
            with suppress(OSError):  # it ended, which is noticed; or it is only later
                self._control.send(json.dumps({"spare": request}).encode())

    async def _open(self) -> socket.socket:
        """Start the process; return the socket that leads to it."""
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.settimeout(0)
        with theirs:
            # Cancelling a start would lose track of the process.
            self._starting = asyncio.create_task(_started(theirs))
            self._process = await asyncio.shield(self._starting)
        self._tasks = [
            asyncio.create_task(self._overhear(self._process)),
            asyncio.create_task(self._listen(self._control)),
        ]
        return self._control

    async def join(self, number: int) -> SocketLink:
        """Return a link to the agent on a node."""
        if self._control is None:
            raise ConnectionError("the process that talks to Ray has ended")
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                socket.send_fds(self._control, [b"%d" % number], [theirs.fileno()])
            except OSError:
                ours.close()
                raise
        ours.settimeout(0)
        return await SocketLink.open(ours)

    async def close(self) -> None:
        """Have the nodes given back, and wait until the process has ended."""
        if self._starting is not None:
            self._process = await asyncio.shield(self._starting)
        if self._control is not None:
            for task in self._tasks[1:]:
                task.cancel()
            self._control.close()
            self._control = None
        if self._process is not None:
            await _ended(self._process)
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _overhear(self, process: asyncio.subprocess.Process) -> None:
        """Keep the end of what the process says, and pass it on to our own standard error."""
        while process.stderr is not None and (data := await process.stderr.read(DATAGRAM_BYTES)):
            self._stderr.feed(data)
            with suppress(OSError):
                os.write(2, data)

    async def _listen(self, control: socket.socket) -> None:
        """Take packets until the process ends."""
        loop = asyncio.get_running_loop()
        with suppress(OSError):
            while data := await loop.sock_recv(control, DATAGRAM_BYTES):
                self._on_packet(json.loads(data))
        self._fail(f"the process that talks to Ray ended: {self.words or 'it said nothing'}")

    def _on_packet(self, packet: dict[str, Any]) -> None:
        kind = packet["type"]
        if kind == "pending":
            self._pending(packet)
        elif kind == "nodes" and not self._nodes.done():
            nodes = dict(enumerate(packet["nodes"], packet["first"]))
            self.errors |= {number: Stderr() for number in nodes}
            self._nodes.set_result(nodes)
        elif kind == "stderr":
            self.errors[packet["node"]].feed(packet["text"].encode())
        elif kind == "failed":
            self._fail(packet["error"])

    def _fail(self, error: str) -> None:
        if not self._nodes.done():
            self._nodes.set_exception(ClusterError(error))
            self._nodes.exception()  # marks it as retrieved: the allocation may be cancelled


def _paths() -> list[str]:
    """Return where this process finds modules: the bridge finds the same Ray."""
    return [path for path in sys.path if path]


async def _started(control: socket.socket) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", str(Path(driver.__file__))),
        stdin=control.fileno(),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        cwd="/",
        start_new_session=True,
    )


async def _ended(process: asyncio.subprocess.Process) -> None:
    """Wait for a process to end; kill it if that takes too long."""
    waiting = asyncio.create_task(process.wait())
    await asyncio.wait([waiting], timeout=UNDO_SECONDS + DRIVER_MARGIN_SECONDS)
    with suppress(ProcessLookupError):
        process.kill()
    await waiting
