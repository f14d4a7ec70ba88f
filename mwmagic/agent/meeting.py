"""The check that machines reach each other: the agent listens here, and `reach` connects."""

from __future__ import annotations

import json
import os
import socket
import struct
import sys

from .inquiry import PROGRAM, Inquiry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .inquiry import Inquiries
    from .loop import Loop
    from .outlet import Outlet
    from .ports import Ports

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

    def __init__(self, loop: Loop, ports: Ports, inquiries: Inquiries, outlet: Outlet) -> None:
        self.loop = loop
        self.ports = ports
        self.inquiries = inquiries
        self.outlet = outlet
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
            self.outlet.emit("reached", id=number, results=results)
        else:
            self.outlet.emit("refused", command="reach", id=number, reason=None, error=why)


def is_target(one: object) -> bool:
    """Return whether something is an address and a word."""
    kinds = [type(word) for word in one] if isinstance(one, list) else []
    return kinds == [str, str]
