"""The private line from a worker to its supervisor, beside the log, and files of the record.

Files are written for their owner alone.
The line is a socket of packets, one JSON object each. Sending must never delay or break training:
if the socket is full the packet is refused, and if the other end is gone it is dropped.
"""

from __future__ import annotations

import os

from mwmagic.model import variables

TYPE_CHECKING = False  # a worker that reports nothing starts without `typing` and `socket`
if TYPE_CHECKING:
    import socket

__all__ = ["Line", "descriptor", "line", "replace_file", "save_file"]

_DESCRIPTOR: list[int | None] = []
_LINE: list[Line | None] = []
"""What this process found, once it looked; `functools` takes as long to import as all of this."""


class Line:
    """One end of the line; only the process that opened it can send."""

    def __init__(self, descriptor: int) -> None:
        import socket

        self._flags = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL
        self._socket: socket.socket | None = socket.socket(fileno=descriptor)
        self._socket.settimeout(None)  # whatever the program set as the default
        os.register_at_fork(after_in_child=self.close)

    @property
    def open(self) -> bool:
        """Whether packets can still be sent from this process."""
        return self._socket is not None

    def send(self, packet: bytes, seconds: float = 0.0) -> bool:
        """Send a packet, or drop it if the line is closed."""
        if self._socket is None:
            return True
        try:
            if seconds:
                _wait_for_room(self._socket, seconds)
            self._socket.send(packet, self._flags)
        except BlockingIOError:
            return False
        except (OSError, ValueError):  # the other end is gone, or user code closed the descriptor
            self.close()
        return True

    def close(self) -> None:
        """Hang up."""
        # A child may have been forked by a thread that is about to use the socket.
        closed, self._socket = self._socket, None
        if closed is not None:
            try:  # noqa: SIM105 - `contextlib` takes a while to import
                closed.close()
            except OSError:  # user code closed the descriptor
                pass


def _wait_for_room(one: socket.socket, seconds: float) -> None:
    import select

    poll = select.poll()
    poll.register(one, select.POLLOUT)
    poll.poll(1000 * seconds)


def descriptor() -> int | None:
    """Return the line's descriptor, which children no longer inherit from now on."""
    if not _DESCRIPTOR:
        _DESCRIPTOR.append(_inherited())
    return _DESCRIPTOR[0]


def _inherited() -> int | None:
    text = os.environ.pop(variables.LINE, "")
    try:
        number = int(text)
        os.set_inheritable(number, False)  # noqa: FBT003 - positional only
    except (OSError, ValueError):
        return None  # there is no line, or the number is another process's
    return number


def line() -> Line | None:
    """Return this process's line, if it has one."""
    if not _LINE:
        _LINE.append(_opened(descriptor()))
    return _LINE[0]


def _opened(number: int | None) -> Line | None:
    try:
        return None if number is None else Line(number)
    except OSError:
        return None  # the descriptor is something else


def replace_file(path: str, text: str) -> None:
    """Write a text in place of what a file holds."""
    draft = f"{path}.draft"
    save_file(draft, text.encode(errors="backslashreplace"))
    os.replace(draft, path)  # noqa: PTH105 - both are strings


def save_file(path: str, data: bytes) -> None:
    """Write a file that nobody reads before this has returned."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
