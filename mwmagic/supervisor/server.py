"""The supervisor's unix socket: its clients, one of which may own the cluster."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import traceback
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import psutil

from mwmagic.engines.link import LineReader
from mwmagic.errors import ClusterEnding, ClusterOwned, MwmagicError, SupervisorError
from mwmagic.model.live import CellNews
from mwmagic.model.messages import REQUESTS, VERSION, Message, check, decode, encode
from mwmagic.model.values import encodable
from mwmagic.model.variables import SESSION

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

__all__ = ["Client", "Server"]

TOGETHER_SECONDS = 0.001
"""How long what a cell's client need not know at once waits for more: each send is dear."""

CLIENT_BACKLOG_BYTES = 2**20
"""Bytes that a client may leave unread before it gets only the latest news."""

_GATHERED = frozenset({CellNews.BEGUN, CellNews.ANSWER})
"""What happens to a cell and may wait for `TOGETHER_SECONDS`."""


def _described(pid: int) -> str:
    """Name a process, and its notebook where Jupyter says which."""
    try:
        notebook = psutil.Process(pid).environ().get(SESSION, "")
    except psutil.Error:
        notebook = ""
    name = encodable(notebook.rpartition("/")[2])
    return f"process {pid} ({name})" if name else f"process {pid}"


@dataclass(eq=False)
class Client:
    """A connection to the supervisor."""

    transport: asyncio.Transport
    greeted: bool = False
    owner: bool = False
    death: int | None = None
    _latest: Message | None = None
    _behind: bool = False
    _gathered: dict[int, list[tuple[CellNews, dict[str, Any]]]] = field(default_factory=dict)
    _due: asyncio.TimerHandle | None = None

    def send(self, message: Message) -> None:
        """Send a message, after those that were gathered."""
        if message["type"] == "reply":
            self._latest = None  # the reply is newer
        self._flush(encode(message))

    def report(self, number: int, what: CellNews, fields: dict[str, Any]) -> None:
        """Send what happened to what a request asked for; often soon, with what comes next."""
        self._gathered.setdefault(number, []).append((what, fields))
        if what not in _GATHERED:
            self._flush()
        elif self._due is None:
            loop = asyncio.get_running_loop()
            self._due = loop.call_later(TOGETHER_SECONDS, self._flush)

    def _flush(self, last: bytes = b"") -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None
        gathered, self._gathered = self._gathered, {}
        messages = ({"type": "cell", "id": at, "news": news} for at, news in gathered.items())
        data = b"".join([*map(encode, messages), last])
        if data and not self.transport.is_closing():
            self.transport.write(data)

    def news(self, message: Message) -> None:
        """Send a message that a later one replaces; a slow reader gets only the latest."""
        if self._behind:
            self._latest = message
        else:
            self.send(message)

    def pause(self) -> None:
        """Keep the news for later: the client reads too slowly."""
        self._behind = True

    def resume(self) -> None:
        """Send the latest news: the client has caught up."""
        self._behind = False
        if self._latest is not None:
            self.send(self._latest)

    @property
    def pid(self) -> int:
        """The process at the other end, as the kernel knows it (``SO_PEERCRED``)."""
        own = self.transport.get_extra_info("socket")
        size = struct.calcsize("3i")
        credentials = own.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
        return int(struct.unpack("3i", credentials)[0])


class _Protocol(asyncio.Protocol):
    """One client's connection, as the event loop reports it."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._lines = LineReader()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._client = client = Client(cast("asyncio.Transport", transport))
        client.transport.set_write_buffer_limits(CLIENT_BACKLOG_BYTES)
        self._server.join(client)
        take = partial(self._server.request, client)
        self._lines.listen(take, partial(self._server.drop, client))

    def data_received(self, data: bytes) -> None:
        self._lines.feed(data)

    def pause_writing(self) -> None:
        self._client.pause()

    def resume_writing(self) -> None:
        self._client.resume()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - it is gone
        self._server.drop(self._client)


class Server:
    """Serves one cluster's clients, and gives it no owner any more once it is `ending`."""

    def __init__(
        self,
        path: Path,
        answer: Callable[[Client, Message], dict[str, Any] | None],
        abandoned: Callable[[], None],
    ) -> None:
        self.path = path
        self.ending = False
        self._answer = answer
        self._abandoned = abandoned
        self._clients: set[Client] = set()
        self._answers: set[asyncio.Task[None]] = set()

    @property
    def owned(self) -> bool:
        """Whether an owner is connected."""
        return any(client.owner for client in self._clients)

    async def open(self) -> None:
        """Start listening."""
        # A client that finds a socket which refuses it takes it for a dead one and removes it.
        unheard = self.path.with_suffix(".new")
        mask = os.umask(0o177)
        try:
            loop = asyncio.get_running_loop()
            self._server = await loop.create_unix_server(lambda: _Protocol(self), unheard)
        finally:
            os.umask(mask)
        unheard.rename(self.path)

    async def close(self) -> None:
        """Hang up on all clients."""
        self._server.close()
        for client in list(self._clients):
            client.transport.close()
        self.path.unlink(missing_ok=True)
        for answer in self._answers:
            answer.cancel()
        await asyncio.gather(*self._answers, return_exceptions=True)

    def broadcast(self, message: Message) -> None:
        """Send the news to all clients."""
        for client in self._clients:
            if client.greeted:
                client.news(message)

    def join(self, client: Client) -> None:
        """Take a new client."""
        self._clients.add(client)

    def request(self, client: Client, line: bytes) -> None:
        """Answer a client's request."""
        number = 0
        try:
            message = decode(line)
            number = message["id"] if isinstance(message.get("id"), int) else 0
            self._admit(client, check(message, REQUESTS))
            result = self._answer(client, message)
        except ConnectionError:
            self.drop(client)  # it is gone
        except MwmagicError as error:
            self._refuse(client, number, type(error).__name__, str(error))
        except OSError as error:
            self._refuse(client, number, "SupervisorError", f"the supervisor failed: {error}")
        except Exception as error:  # noqa: BLE001 - hanging up would end the owner's cluster
            traceback.print_exc()
            self._refuse(client, number, "SupervisorError", f"the supervisor failed: {error!r}")
        else:
            if result is not None:
                client.send({"type": "reply", "id": number, "result": result})

    def answer_later(self, client: Client, number: int, work: Coroutine[Any, Any, None]) -> None:
        """Answer a request when what it asks for is done, or say why it cannot be."""
        task = asyncio.create_task(self._answer_after(client, number, work))
        self._answers.add(task)
        task.add_done_callback(self._answers.discard)

    async def _answer_after(
        self, client: Client, number: int, work: Coroutine[Any, Any, None]
    ) -> None:
        try:
            await work
        except MwmagicError as error:
            self._refuse(client, number, type(error).__name__, str(error))
        except OSError as error:
            self._refuse(client, number, "SupervisorError", f"the supervisor failed: {error}")
        else:
            client.report(number, CellNews.DONE, {})

    def _refuse(self, client: Client, number: int, kind: str, error: str) -> None:
        client.send({"type": "error", "id": number, "kind": kind, "error": error})

    def _admit(self, client: Client, message: Message) -> None:
        """Greet a client, and refuse one that did not introduce itself."""
        if message["type"] != "hello":
            if not client.greeted:
                raise SupervisorError("the first request of a connection must be hello")
            return
        if message["version"] != VERSION:
            raise SupervisorError(
                f"this supervisor speaks version {VERSION}, not {message['version']}; "
                f"restart the kernel after an upgrade, or end the cluster with `kill {os.getpid()}`"
            )
        if message["owner"]:
            self._check_free()
        client.greeted = True
        if message["owner"]:
            client.owner = True
            self._watch(client)

    def _check_free(self) -> None:
        if self.ending:
            raise ClusterEnding(
                "it is ending and accepts no new owner; wait until it has ended, or "
                f"`kill {os.getpid()}`"
            )
        for client in self._clients:
            if client.owner:
                raise ClusterOwned(
                    f"it has an owner already, {_described(client.pid)}; give another cluster "
                    "another name, or end this one where it belongs, with `%mw_stop --cluster`"
                )

    def _watch(self, client: Client) -> None:
        """Notice the owner's death even while one of its children holds the socket open."""
        try:
            client.death = os.pidfd_open(client.pid)
        except ProcessLookupError:
            raise ConnectionResetError("the owner is dead") from None
        asyncio.get_running_loop().add_reader(client.death, self.drop, client)

    def disown(self, client: Client) -> None:
        """Make an owner an ordinary client, whose end does not matter."""
        client.owner = False
        self._unwatch(client)

    def _unwatch(self, client: Client) -> None:
        if client.death is not None:
            asyncio.get_running_loop().remove_reader(client.death)
            os.close(client.death)
            client.death = None

    def drop(self, client: Client) -> None:
        """Hang up on a client; where it owned the cluster, say that it is gone."""
        if client not in self._clients:
            return
        self._clients.discard(client)
        self._unwatch(client)
        client.transport.close()
        if client.owner:
            self._abandoned()
