"""Ports that are kept free for workers."""

from __future__ import annotations

import socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


PORTS_LIMIT = 4096
"""The most that one command may hold; about 28,000 are free on a machine."""


class Ports:
    """Placeholders that keep ports free for workers, which bind the same ports.

    A placeholder is bound with SO_REUSEPORT and never listens, so it gets no connections. The
    kernel gives its port only to a socket that asks for that very port with SO_REUSEPORT, as gRPC
    does, or with SO_REUSEADDR, as PyTorch does.
    """

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
