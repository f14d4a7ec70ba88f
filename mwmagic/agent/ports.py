"""Ports that are kept free for workers, and the check that machines reach each other at them."""

from __future__ import annotations

import errno
import json
import os
import socket
import struct
import sys
import time

from .machine import PROGRAM, Inquiry
from .system import reason_of
from .wire import FAILED, REFUSED, SILENT, STRANGER, UNRESOLVED, UNROUTABLE, as_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from .machine import Inquiries
    from .system import EventWriter, Loop

PORTS_LIMIT = 4096
"""The most that one command may hold; about 28,000 are free on a machine."""


class Ports:
    """Placeholders that keep ports free for workers, which bind the same ports.

    A framework learns its port long before it binds it, and another program may take it until then.
    """

    # A placeholder is bound with SO_REUSEPORT and never listens, so the kernel never gives it a
    # connection, and gives its port to nobody who asks for any free one. But a socket that asks
    # for that very port gets it as well, if it has SO_REUSEPORT, as gRPC's have, or SO_REUSEADDR,
    # as PyTorch's have. The agent holds it for as long as the cluster lives, over all restarts.

    def __init__(self) -> None:
        self.held: dict[int, socket.socket] = {}

    def hold(self, count: int) -> list[int]:
        """Hold `count` more ports: all of them or none."""
        if not 0 <= count <= PORTS_LIMIT:
            raise ValueError(f"{count} ports cannot be held; 0 to {PORTS_LIMIT} can")
        taken: list[socket.socket] = []
        try:
            taken.extend(self.placeholder() for _ in range(count))
        except OSError:
            for one in taken:
                one.close()
            raise
        ports = [one.getsockname()[1] for one in taken]
        self.held.update(zip(ports, taken, strict=True))
        return ports

    def placeholder(self) -> socket.socket:
        """Bind one free port on every address of this machine."""
        try:
            return self.bound(socket.AF_INET6, "::")
        except OSError:
            return self.bound(socket.AF_INET, "0.0.0.0")  # noqa: S104 - TensorFlow binds it too

    def beside(self, port: int) -> socket.socket:
        """Bind a held port beside its placeholder, as a worker does."""
        if port not in self.held:
            raise ValueError(f"port {port} is not held")
        address = self.held[port].getsockname()[0]
        return self.bound(self.held[port].family, address, port)

    def bound(self, family: int, address: str, port: int = 0) -> socket.socket:
        """Bind a port of an address family, by default a free one."""
        one = socket.socket(family, socket.SOCK_STREAM)
        try:
            if family == socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            one.bind((address, port))
            # Set only now, so that the kernel chooses a port that no other socket shares.
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        except OSError:
            one.close()
            raise
        return one

    def release(self, ports: Iterable[int]) -> None:
        """Give ports back; those that are not held are left alone."""
        for port in ports:
            if port in self.held:
                self.held.pop(port).close()


EXTRA_SECONDS = 10.0
"""How long the process that connects may take besides what it was given."""

BACKLOG_COUNT = 4096
"""How many connections may wait; the system allows fewer."""

CONNECTIONS_LIMIT = 256
"""How many are open at a time, as a process may have few open files."""

ABORT = struct.pack("ii", 1, 0)
"""The value of SO_LINGER with which a closed connection leaves nothing behind."""


class Meeting:
    """Sockets that listen at held ports, and the `reach` commands."""

    def __init__(self, loop: Loop, ports: Ports, inquiries: Inquiries, events: EventWriter) -> None:
        self.loop = loop
        self.ports = ports
        self.inquiries = inquiries
        self.events = events
        self.doors: dict[socket.socket, bytes] = {}
        self.guests: set[socket.socket] = set()

    # Listening.

    def listen(self, port: int, word: bytes) -> None:
        """Listen at a held port, and tell all that connect a word."""
        door = self.ports.beside(port)
        door.settimeout(0)
        door.listen(BACKLOG_COUNT)
        self.doors[door] = word
        self.loop.watch(door.fileno(), lambda: self.admit(door))

    def admit(self, door: socket.socket) -> None:
        """Accept a connection and send the word; the other end then closes it."""
        if len(self.guests) >= CONNECTIONS_LIMIT:
            self.part(next(iter(self.guests)))
        try:
            guest, _ = door.accept()
        except OSError:  # it is gone again, or there are too many files
            return
        guest.settimeout(0)
        self.guests.add(guest)
        self.loop.watch(guest.fileno(), lambda: self.part(guest))
        try:
            guest.send(self.doors[door])
        except OSError:
            self.part(guest)

    def part(self, guest: socket.socket) -> None:
        """Close a connection, also one that the other end has not closed."""
        self.loop.unwatch(guest.fileno())
        self.guests.discard(guest)
        with guest:
            guest.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, ABORT)

    def end(self) -> None:
        """Listen no more."""
        for guest in list(self.guests):
            self.part(guest)
        for door in self.doors:
            self.loop.unwatch(door.fileno())
            door.close()
        self.doors.clear()

    # Reaching others.

    def reach(self, number: int, targets: list[Any], seconds: float) -> None:
        """Start to find out which addresses can be reached."""
        if not all(is_target(one) for one in targets):
            raise ValueError("each target must be an address and a word")
        argv = [sys.executable, "-I", "-S", PROGRAM, "reach"]
        question = json.dumps({"targets": targets, "seconds": seconds}).encode()
        inquiry = Inquiry(argv, dict(os.environ), seconds + EXTRA_SECONDS, question)
        self.inquiries.make(inquiry, lambda said, why: self.reached(number, said, why))

    def reached(self, number: int, said: str, why: str | None) -> None:
        """Report which can be reached."""
        try:
            results = json.loads(said) if why is None else None
        except ValueError as error:
            why = str(error)
        if why is None:
            self.events.emit("reached", id=number, results=results)
        else:
            self.events.emit("refused", command="reach", id=number, reason=None, error=why)


def is_target(one: object) -> bool:
    """Return whether something is an address and a word."""
    kinds = [type(word) for word in one] if isinstance(one, list) else []
    return kinds == [str, str]


# The process that tries the others' ports.

TRIES = 2
"""How often each address is tried: the first packet may be lost, and then the system waits."""

WORD_SECONDS = 1.0
"""How much longer an agent may take to send its word: the system connects, but the agent sends."""

STACK_BYTES = 256 << 10

WHY = {
    errno.ECONNREFUSED: REFUSED,
    errno.ECONNRESET: STRANGER,
    errno.ENETUNREACH: UNROUTABLE,
    errno.EHOSTUNREACH: UNROUTABLE,
    errno.EACCES: UNROUTABLE,  # of a route that is prohibited
    errno.EINVAL: UNROUTABLE,  # of a route that is a black hole
    errno.ETIMEDOUT: SILENT,
}


class Attempt:
    """The attempt to reach one address; `result` says why it was not, as far as that is known."""

    def __init__(self, address: str, word: str, end: float) -> None:
        self.host, _, self.port = address.rpartition(":")
        self.word = as_bytes(word)
        self.end = end
        self.connected = False
        self.result: dict[str, Any] | None = failed(UNRESOLVED, [], "no answer in time")

    def run(self) -> None:
        """Look up the name, and connect."""
        try:
            kind = socket.SOCK_STREAM
            found = socket.getaddrinfo(self.host.strip("[]"), int(self.port), type=kind)
        except (OSError, ValueError) as error:
            self.result = failed(UNRESOLVED, [], reason_of(error))
            return
        at = list(dict.fromkeys(str(end[0]) for *_, end in found))
        self.result = failed(SILENT, at, "timed out")
        tries = [(family, end) for _ in range(TRIES) for family, _, _, _, end in found]
        for number, (family, end) in enumerate(tries):
            seconds = (self.end - time.monotonic()) / (len(tries) - number)
            self.result = self.outcome(family, end, max(seconds, 0.001), at)
            if self.result is None:
                return

    def outcome(
        self, family: int, end: tuple[Any, ...], seconds: float, at: list[str]
    ) -> dict[str, Any] | None:
        """Return the result of one try."""
        try:
            with socket.socket(family, socket.SOCK_STREAM) as one:
                one.settimeout(seconds)
                one.connect(end)
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, ABORT)
                return self.greeted(one, at)
        except TimeoutError:
            return self.result
        except OSError as error:
            return failed(WHY.get(error.errno or 0, FAILED), at, reason_of(error))

    def greeted(self, one: socket.socket, at: list[str]) -> dict[str, Any] | None:
        """Return None if the word is sent, and otherwise what is."""
        self.result = failed(STRANGER, at, "no answer")
        self.connected = True
        one.settimeout(max(self.end - time.monotonic(), 0.0) + WORD_SECONDS)
        said = b""
        while len(said) < len(self.word):
            piece = one.recv(len(self.word) - len(said))
            if not piece:
                break
            said += piece
        return None if said == self.word else failed(STRANGER, at, "another answer")


def failed(why: str, at: list[str], error: str) -> dict[str, Any]:
    """Return why an address was not reached."""
    return {"why": why, "at": at, "error": error}


def print_reached() -> None:
    """Try all addresses of a request in JSON, and print the results in the same order.

    It is a process of its own because looking up a name may block for many seconds.
    """
    import threading  # which the agent does without

    request = json.load(sys.stdin)
    end = time.monotonic() + request["seconds"]
    threading.stack_size(STACK_BYTES)
    attempts = [Attempt(address, word, end) for address, word in request["targets"]]
    threads = [threading.Thread(target=one.run, daemon=True) for one in attempts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(end - time.monotonic(), 0.0))
    for one, thread in zip(attempts, threads, strict=True):
        if one.connected:
            thread.join(max(end + WORD_SECONDS - time.monotonic(), 0.0))
    sys.stdout.write(json.dumps([one.result for one in attempts]))
    sys.stdout.flush()
    os._exit(0)  # without waiting for names
