"""The engine's end of the bridge to Ray; `driver` is the process that is the bridge."""

from __future__ import annotations

import asyncio
import json
import os
import select
import socket
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mwmagic.engines.link import LineReader, Stderr
from mwmagic.errors import ClusterError

from . import driver
from .driver import DATAGRAM_BYTES, UNDO_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Bridge", "SocketLink", "check_ray"]

DRIVER_MARGIN_SECONDS = 2.0
"""How much longer than it should the process may take to end before it is killed."""


STRAY_SECONDS = 0.05
"""How much later than an agent's end a packet about it may be read: it comes another way."""


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
