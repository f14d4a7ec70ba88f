"""Finds out which addresses can be reached, all at the same time.

The agent starts it as ``python -I -S DIR/__main__.py reach``. It reads JSON from its standard input
and prints JSON. It is a process of its own because looking up a name may block for many seconds.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import sys
import threading
import time

from .ports import ABORT
from .system import reason_of
from .wire import FAILED, REFUSED, SILENT, STRANGER, UNRESOLVED, UNROUTABLE, as_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TRIES = 2
"""How often each address is tried: the first packet may be lost, and then the system waits."""

WORD_SECONDS = 1.0
"""How much longer an agent may take to tell its word: the system connects, but the agent tells."""

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


class Attempt(threading.Thread):
    """The attempt to reach one address.

    Attributes
    ----------
    connected : bool
        Whether there was a connection.
    result : dict or None
        Why it was not reached, as far as that is known; None if it was.
    """

    def __init__(self, address: str, word: str, end: float) -> None:
        super().__init__(daemon=True)
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
        """Return None if the word is told, and otherwise what is."""
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


def run() -> None:
    """Try all addresses, and print the results in the same order."""
    request = json.load(sys.stdin)
    end = time.monotonic() + request["seconds"]
    threading.stack_size(STACK_BYTES)
    attempts = [Attempt(address, word, end) for address, word in request["targets"]]
    for one in attempts:
        one.start()
    for one in attempts:
        one.join(max(end - time.monotonic(), 0.0))
    for one in attempts:
        if one.connected:
            one.join(max(end + WORD_SECONDS - time.monotonic(), 0.0))
    sys.stdout.write(json.dumps([one.result for one in attempts]))
    sys.stdout.flush()
    os._exit(0)  # without waiting for names
