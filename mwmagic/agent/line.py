"""A worker's private line: packets of text in both directions, separate from its output."""

from __future__ import annotations

import socket

from .wire import PACKET_BYTES

CREDENTIALS_BYTES = socket.CMSG_SPACE(12)


class LinePair:
    """A pair of connected sockets that preserve the boundaries of packets.

    A packet that is not read stays in the socket. The kernel thus applies backpressure to a worker
    that sends too much, and the agent's memory does not grow.
    """

    def __init__(self) -> None:
        self.near, self.far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.near.setblocking(False)  # noqa: FBT003 - it has no keywords
        # The kernel then adds the sender to each packet, so an empty packet differs from the end.
        self.near.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self.ended = False
        self.dropped = 0

    def take(self) -> bytes | None:
        """Return the next packet, empty if it must not be forwarded, or None if there is none."""
        try:
            data, sender, flags, _ = self.near.recvmsg(PACKET_BYTES, CREDENTIALS_BYTES)
        except BlockingIOError:
            return None
        except ConnectionResetError:  # raised once, if the worker left packets of ours unread
            return self.take()
        if not sender:
            self.ended = True
            return None
        if flags & socket.MSG_TRUNC:
            self.dropped += 1
            return b""
        return data

    def tell(self, data: bytes) -> None:
        """Send the worker a packet; raise OSError if it does not accept any."""
        self.near.send(data, socket.MSG_NOSIGNAL)

    def close(self) -> None:
        """Close both ends."""
        self.near.close()
        self.far.close()
