"""Ports that are kept free for workers, and the check that machines reach each other at them."""

from __future__ import annotations

import json
import os
import socket
import struct
import sys

from .inquiry import PROGRAM, Inquiry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from .inquiry import Inquiries
    from .loop import EventWriter, Loop

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
