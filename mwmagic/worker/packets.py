"""What a worker says of its cells, as packets on its line.

How a cell ended always gets through, in short if it cannot be sent whole.
"""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

from .file import save

if TYPE_CHECKING:
    import socket

__all__ = ["Packets"]

LONGEST_BYTES = 2**15
"""The longest message that is sent as a packet; a longer one goes to a file."""

SHORT_CHARACTERS = 1_000
"""The most of a text in a message that cannot be sent whole; JSON takes up to 12 bytes for each."""


class Packets:
    """Sends messages, each a JSON object."""

    def __init__(self, line: socket.socket, report: str) -> None:
        self._line = line
        self._beside = report.removesuffix(".json")
        self._numbers = itertools.count(1)

    def send(self, message: dict[str, Any]) -> bool:
        """Send a message, or in short what it says; return whether anybody is there."""
        try:
            packet = json.dumps(message, allow_nan=False).encode()
            if len(packet) > LONGEST_BYTES:
                packet = self._left(message, packet)
        except Exception as error:  # noqa: BLE001 - a full disk, or a value that JSON cannot hold
            packet = json.dumps(_short(message, error)).encode()
        try:
            self._line.sendall(packet)
        except OSError:  # the supervisor is gone, or the user's code closed the line
            return False
        return True

    def _left(self, message: dict[str, Any], packet: bytes) -> bytes:
        """Leave a message in a file, and return the packet that names it."""
        if not self._beside:
            raise FileNotFoundError("its log is not known")
        path = f"{self._beside}.said-{next(self._numbers)}.json"
        save(path, packet)
        return json.dumps({"live": message["live"], "cell": message["cell"], "file": path}).encode()


def _short(message: dict[str, Any], error: Exception) -> dict[str, Any]:
    """Return what a message says without what cannot be sent, and why not."""
    why = f"{type(error).__name__}: {error}"[:SHORT_CHARACTERS]
    if message["live"] == "compared":
        return {"live": "unable", "cell": message["cell"], "why": why}
    kept = ("live", "cell", "ok", "freed", "seconds", "look", "code", "signal", "debugger")
    short = {name: message[name] for name in kept if name in message}
    if message.get("value"):
        text = message["value"]["text/plain"][:SHORT_CHARACTERS]
        short["value"] = {"text/plain": f"{text} … (the rest could not be sent: {why})"}
    if message.get("raised"):
        raised = message["raised"]
        cut = {name: raised[name][-SHORT_CHARACTERS:] for name in ("message", "trace")}
        short["raised"] = {**raised, **cut}
    if "prompt" in message:
        short["prompt"] = message["prompt"][:SHORT_CHARACTERS]
    return {**short, "found": None, "report": None}
