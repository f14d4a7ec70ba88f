"""A client's connection to a supervisor, and what is waited for over it: machines and files."""

from __future__ import annotations

import os
import signal
import socket
import struct
import threading
import time
import traceback
import uuid
from collections import deque
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from mwmagic import errors
from mwmagic.model.live import CellNews
from mwmagic.model.machine import Fetch, Placing
from mwmagic.model.messages import (
    MESSAGE_BYTES,
    REPLIES,
    REQUESTS,
    VERSION,
    LineBuffer,
    Message,
    check,
    decode,
    encode,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = [
    "CLOSE_SECONDS",
    "REPLY_SECONDS",
    "Connection",
    "Conversation",
    "error_named",
    "fetched",
    "placed",
]

CLOSE_SECONDS = 15.0
"""Time limit for a supervisor to end everything, in addition to a run's grace."""

REPLY_SECONDS = 5.0
"""Time limit for a supervisor to take a request to end something."""

ANSWER_SECONDS = 60.0
"""Time limit for an answer to a request that changes something."""

RECEIVE_BYTES = 2**16
"""How much is received at once."""

QUERY_SECONDS = 5.0
"""Time limit for an answer to any other request: the supervisor may be stopped."""


def _reply(line: bytes) -> Message:
    """Return what a supervisor sends; a request's result is a snapshot like any other."""
    message = check(decode(line), REPLIES)
    if message["type"] == "reply":
        check({**message["result"], "type": "snapshot"}, REPLIES)
    if message["type"] == "cell" and not (message["news"] and all(map(_is_news, message["news"]))):
        raise errors.SupervisorError(f"not what happens to a cell: {line[:80]!r}")
    return message


def _is_news(news: object) -> bool:
    """Return whether this is a word and its particulars."""
    match news:
        case [str(), dict()]:
            return True
    return False


def _peer(connected: socket.socket) -> int:
    """Return the process at the other end of a socket."""
    size = struct.calcsize("3i")
    credentials = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    return int(struct.unpack("3i", credentials)[0])


def _stopped(pid: int) -> bool:
    """Return whether a process was stopped, as SIGSTOP does."""
    import psutil  # which takes longer to import than a cell needs

    with suppress(psutil.Error):
        return bool(psutil.Process(pid).status() == psutil.STATUS_STOPPED)
    return False


def error_named(kind: str, text: str) -> errors.MwmagicError:
    """Return the error that a supervisor names; one of a kind that is unknown here is its own."""
    error: errors.MwmagicError = getattr(errors, kind, errors.SupervisorError)(text)
    return error


_News = tuple[str, dict[str, Any]]
"""What happened, as a `mwmagic.model.live.CellNews`, and the particulars."""


class Conversation:
    """What a supervisor reports, bit by bit, of what a request asked for."""

    def __init__(self) -> None:
        self._news: deque[_News | errors.MwmagicError] = deque()
        self._changes: SimpleQueue[None] = SimpleQueue()

    def put(self, news: _News | errors.MwmagicError) -> None:
        """Take what happened, or the error that ends it."""
        self._news.append(news)
        self._changes.put(None)

    def wait(self, seconds: float | None) -> bool:
        """Return whether something comes within some seconds; Ctrl-C in that time loses nothing."""
        until = None if seconds is None else time.monotonic() + seconds
        while not self._news:
            # Only a hint to look again: if Ctrl-C raises as `get` returns, what it returns is lost.
            with suppress(Empty):
                self._changes.get(timeout=until and max(0.0, until - time.monotonic()))
            if until is not None and time.monotonic() >= until:
                break
        return bool(self._news)

    def next(self, seconds: float | None) -> tuple[str, dict[str, Any]]:
        """Return what happened next, and the particulars."""
        if not self.wait(seconds):
            raise Empty
        news = self._news.popleft()
        if isinstance(news, errors.MwmagicError):
            raise news
        return news


LOOKS = frozenset({"hello", "snapshot", "stacks"})
"""The requests that change nothing, and so do not wake a supervisor that was stopped."""

LAST = frozenset({CellNews.REFUSED, CellNews.DONE, CellNews.LOOKED})
"""What happens last to a cell, or to a look."""


class Connection:
    """Requests to a supervisor, and the news it sends.

    `news` is the latest snapshot, and `pid` the supervisor's process, as the kernel knows it
    (``SO_PEERCRED``).
    """

    def __init__(self, path: Path, *, owner: bool, wake: bool = False) -> None:
        self.path = path
        self.news: Message = {"cluster": {}, "run": None}
        self._listeners: list[Callable[[Message], None]] = []
        self._answers: dict[int, Message] = {}
        self._conversations: dict[int, Conversation] = {}
        self._next = 0
        self._changed = threading.Condition(threading.RLock())
        self._lost = False
        self._closed = False
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(None)  # whatever the user's code set as the default
        try:
            self._socket.connect(str(path))
        except OSError as error:
            self._socket.close()
            raise errors.SupervisorLost(f"no supervisor listens at {path}: {error}") from error
        self.pid = _peer(self._socket)
        self._incoming = self._socket.dup()  # which stays open until its end has been read
        self._buffer = LineBuffer()
        threading.Thread(target=self._listen, name="mwmagic-connection", daemon=True).start()
        if owner or wake:
            self._wake()
        try:
            limit = ANSWER_SECONDS if owner else QUERY_SECONDS
            self.request("hello", seconds=limit, version=VERSION, owner=owner)
        except BaseException:
            self.close()
            raise

    def _wake(self) -> None:
        """Let the supervisor continue, in case it was stopped; it could not hear a request."""
        if not self._lost:
            with suppress(OSError):
                os.kill(self.pid, signal.SIGCONT)

    @property
    def lost(self) -> bool:
        """Whether the supervisor is gone."""
        return self._lost

    @property
    def closed(self) -> bool:
        """Whether this side hung up."""
        return self._closed

    def listen(self, listener: Callable[[Message], None]) -> Callable[[], None]:
        """Call `listener` with each snapshot, on a thread; return a function that ends that."""
        with self._changed:
            self._listeners.append(listener)
        return lambda: self._forget(listener)

    def _forget(self, listener: Callable[[Message], None]) -> None:
        with self._changed:
            if listener in self._listeners:
                self._listeners.remove(listener)

    def request(
        self,
        kind: str,
        *,
        seconds: float | None = None,
        **fields: Any,  # noqa: ANN401 - JSON values
    ) -> Message:
        """Send the supervisor a request and return its answer."""
        limit = seconds or (QUERY_SECONDS if kind in LOOKS else ANSWER_SECONDS)
        if kind not in LOOKS:
            self._wake()
        with self._changed:
            self._next += 1
            number = self._next
            self._send(check({"type": kind, "id": number, **fields}, REQUESTS))
            ready = self._changed.wait_for(lambda: number in self._answers or self._lost, limit)
            answer = self._answers.pop(number, None)
        if answer is None:
            raise self._gone() if ready else self._silent(kind, limit)
        if answer["type"] == "error":
            raise error_named(answer["kind"], answer["error"])
        return dict(answer["result"])

    def converse(self, kind: str, **fields: Any) -> Conversation:  # noqa: ANN401 - JSON values
        """Send a request that is answered by what happens to what it asks for."""
        self._wake()
        with self._changed:
            self._next += 1
            conversation = self._conversations[self._next] = Conversation()
            self._send(check({"type": kind, "id": self._next, **fields}, REQUESTS))
            if self._lost:
                conversation.put(self._gone())
        return conversation

    def wait(self, done: Callable[[Message], bool], timeout: float | None) -> bool:
        """Wait until the latest snapshot satisfies `done`; return whether it does."""
        with self._changed:
            limit = None if timeout is None else min(timeout, threading.TIMEOUT_MAX)
            self._changed.wait_for(lambda: done(self.news) or self._lost, limit)
            if self._lost and not done(self.news):
                raise self._gone()
            return done(self.news)

    def close(self) -> None:
        """Hang up."""
        self._closed = True
        # Its copy stays open until it is read to its end; the other side must not wait for that.
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _send(self, message: Message) -> None:
        line = encode(message)
        if len(line) > MESSAGE_BYTES:  # the supervisor would hang up
            raise errors.SupervisorError(
                f"the request has {len(line)} bytes, and {MESSAGE_BYTES} are the limit; "
                "pass large data in a file"
            )
        try:
            self._socket.sendall(line)
        except OSError as error:
            raise self._gone() from error

    def _silent(self, kind: str, limit: float) -> errors.SupervisorError:
        pid = self.pid
        if _stopped(pid):
            return errors.SupervisorError(
                f"the cluster's supervisor, process {pid}, is stopped; "
                f"`kill -CONT {pid}` resumes it"
            )
        return errors.SupervisorError(
            f"the cluster's supervisor, process {pid}, did not answer {kind!r} in {limit:g} s; try "
            f"again, or end the cluster with `kill -KILL {pid}`"
        )

    def _gone(self) -> errors.SupervisorLost:
        return errors.SupervisorLost(
            "the cluster's supervisor is gone, and its workers with it; "
            "declare the cluster again with %mw_cluster"
        )

    def _listen(self) -> None:
        """Take what the supervisor sends, until either side hangs up."""
        with suppress(OSError, errors.MwmagicError, ValueError):
            while data := self._incoming.recv(RECEIVE_BYTES):
                for line in self._buffer.lines(data):
                    self._on_message(_reply(line))
        self._end()

    def _end(self) -> None:
        self._incoming.close()
        self._socket.close()
        with self._changed:
            self._lost = True
            self._changed.notify_all()
            for conversation in self._conversations.values():
                conversation.put(self._gone())
        self._announce()

    def _on_message(self, message: Message) -> None:
        conversation = self._conversations.get(message.get("id", 0))
        if conversation is not None:
            self._converse(conversation, message)
            return
        with self._changed:
            if message["type"] != "error":
                self.news = message.get("result", message)
            if message["type"] != "snapshot":
                self._answers[message["id"]] = message
            self._changed.notify_all()
        if message["type"] != "error":
            self._announce()

    def _converse(self, conversation: Conversation, message: Message) -> None:
        """Pass on what happened; the last of it ends the conversation."""
        if message["type"] == "error":
            conversation.put(error_named(message["kind"], message["error"]))
            last = True
        else:
            for what, fields in message["news"]:
                conversation.put((what, fields))
            last = what in LAST
        if last:
            del self._conversations[message["id"]]

    def _announce(self) -> None:
        with self._changed:
            listeners = list(self._listeners)
        for listener in listeners:
            self._call(listener)

    def _call(self, listener: Callable[[Message], None]) -> None:
        try:
            listener(self.news)
        except Exception:  # noqa: BLE001 - a listener's fault must not end the connection
            self._forget(listener)
            traceback.print_exc()


def placed(connection: Connection, on_message: Callable[[str], None]) -> None:
    """Wait until a cluster has its machines, for as long as that takes."""
    last = ""

    def moved(news: Message) -> bool:
        """Return whether there is a new message, or nothing more to wait for."""
        now = Placing(**news["cluster"]["placing"])
        return now.state != "waiting" or now.message not in ("", last)

    while True:
        connection.wait(moved, None)
        now = Placing(**connection.news["cluster"]["placing"])
        if now.message not in ("", last):
            last = now.message
            on_message(last)
        if now.state == "failed":
            raise error_named(now.kind, now.error)
        if now.state == "placed":
            return


def fetched(
    connection: Connection,
    on_message: Callable[[Fetch], None],
    **request: Any,  # noqa: ANN401 - the fields of a request
) -> Fetch:
    """Fetch a file, and return how that ended.

    The part that has arrived is removed if the wait is interrupted.
    """
    key = uuid.uuid4().hex

    def fetch(news: Message) -> Fetch:
        return Fetch(**news["cluster"]["fetches"][key])

    connection.request("fetch", key=key, **request)
    try:
        now = Fetch("", "", "")
        while now.state == "going":
            last = now
            connection.wait(lambda news: fetch(news) != last, None)  # noqa: B023 - called here
            now = fetch(connection.news)
            on_message(now)
    finally:
        with suppress(errors.SupervisorError):
            connection.request("forget", key=key, seconds=REPLY_SECONDS)
    if now.state == "failed":
        raise error_named(now.kind, now.error)
    return now
