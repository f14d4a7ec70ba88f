"""Listens to a socket on a thread of its own, or on a thread that waits for what it brings.

To wake another thread takes about as long as to wake another process, and a thread that only waits
for the next message can as well receive it.
"""

from __future__ import annotations

import select
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Ear", "Loan"]

ASIDE_SECONDS = 0.01
"""How long the ear's own thread leaves the socket alone when another thread has listened: if that
one listens again soon, the own thread would be woken for nothing each time."""


class Ear:
    """Has one thread at a time listen.

    Parameters
    ----------
    descriptor : int
        The socket's.
    take : callable
        Called when something may be there: receives it without waiting, acts on it, and returns
        whether more may come.
    """

    def __init__(self, descriptor: int, take: Callable[[], bool]) -> None:
        self._descriptor = descriptor
        self._take = take
        self._taking = threading.Lock()
        self._taker: int | None = None
        self._lent = False
        self._over = False
        self._returned = threading.Event()

    def start(self, name: str) -> None:
        """Begin to listen, on a thread with this name."""
        self._returned.set()
        threading.Thread(target=self._listen, name=name, daemon=True).start()

    def lent(self) -> Loan:
        """Return a block in which this thread listens, with `wait` and `take`.

        It yields False if it must not: another one listens then, or this one is taking something
        right now.
        """
        return Loan(self)

    def lend(self) -> bool:
        """Let this thread listen until `give_back`; return False if it must not."""
        if self._taker == threading.get_ident():
            return False
        with self._taking:  # so that nothing is half taken when this thread looks what has come
            lent, self._lent = self._lent, True
            return not lent

    def give_back(self) -> None:
        """Let the own thread listen again."""
        self._lent = False
        self._returned.set()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until something is there, at most some seconds, and return whether it is."""
        poll = select.poll()  # its own, as the ear's thread may be waiting too
        poll.register(self._descriptor, select.POLLIN)
        return bool(poll.poll(None if seconds is None else max(0.0, 1000 * seconds)))

    def take(self) -> bool:
        """Take what is there; return whether more may come."""
        with self._taking:
            self._taken()
            return not self._over

    def _taken(self) -> None:
        self._taker = threading.get_ident()
        self._over = self._over or not self._take()
        self._taker = None

    def _listen(self) -> None:
        while not self._over:
            self._returned.wait()
            self._returned.clear()
            time.sleep(ASIDE_SECONDS)
            while not self._lent and not self._over:
                self.wait()
                self._take_own()

    def _take_own(self) -> None:
        with self._taking:
            if not self._lent:
                self._taken()


class Loan:
    """A block in which another thread than an ear's own listens.

    Parameters
    ----------
    ear : Ear
        The ear.
    """

    def __init__(self, ear: Ear) -> None:
        self._ear = ear
        self._mine = False

    def __enter__(self) -> bool:
        self._mine = self._ear.lend()
        return self._mine

    def __exit__(self, *_: object) -> None:
        if self._mine:
            self._ear.give_back()
