"""A shorter way to a worker on the supervisor's own machine: its private line, without the agent.

The agent has the line's end and passes on what it is told to. Where a user waits for a cell, one
process less has to wake up if the supervisor writes there itself.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

from mwmagic.agent.system import LIBC

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Shortcut", "borrowed"]

PIDFD_GETFD_CODE = 438
"""The number of this system call, which is the same on all architectures; Python has none."""


class Shortcut:
    """A way to a worker that does not lead through the agent: the near end of its line.

    Parameters
    ----------
    end : socket.socket
        A copy of it.
    """

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    def tell(self, packet: bytes) -> bool:
        """Send a packet; return False if there is no room for it, or the other end is gone."""
        try:
            self._end.send(packet, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Close this copy."""
        self._end.close()


def borrowed(agent: int | None, line: Mapping[str, int] | None) -> Shortcut | None:
    """Return a line that an agent on this machine has.

    Parameters
    ----------
    agent : int or None
        Its process.
    line : mapping or None
        The number of its ``descriptor``, and the ``inode``, by which the socket is known.

    Returns
    -------
    Shortcut or None
        None if that is unknown, or the kernel does not allow it, as in some containers: it asks
        for what ptrace(2) needs, and for Linux 5.6.
    """
    if agent is None or not line:
        return None
    copy = _copied(agent, line["descriptor"])
    if copy is None:
        return None
    if os.fstat(copy).st_ino != line["inode"]:  # it has closed that, and opened another
        os.close(copy)
        return None
    return Shortcut(socket.socket(fileno=copy))


def _copied(process: int, descriptor: int) -> int | None:
    """Return a copy of a process's descriptor."""
    copy = -1
    with suppress(OSError):
        pidfd = os.pidfd_open(process)
        try:
            copy = LIBC.syscall(PIDFD_GETFD_CODE, pidfd, descriptor, 0)
        finally:
            os.close(pidfd)
    return None if copy < 0 else copy
