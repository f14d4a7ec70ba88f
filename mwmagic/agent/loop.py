"""What is ready is called back, in order."""

from __future__ import annotations

import select

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


class Loop:
    """Calls back when descriptors are ready, in the order in which they became so.

    The kernel's ready list keeps that order, so exits are seen as they happened even if this
    process could not run meanwhile.
    """

    def __init__(self) -> None:
        self.epoll = select.epoll()
        self.callbacks: dict[int, Callable[[], None]] = {}

    def watch(
        self, descriptor: int, callback: Callable[[], None], events: int = select.EPOLLIN
    ) -> None:
        """Call back whenever a descriptor is ready for one of the events."""
        self.epoll.register(descriptor, events)
        self.callbacks[descriptor] = callback

    def unwatch(self, descriptor: int) -> None:
        """Stop watching a descriptor that is still open."""
        if self.callbacks.pop(descriptor, None):
            self.epoll.unregister(descriptor)

    def turn(self, pause: float) -> None:
        """Wait for what is ready, some seconds at most, and call back."""
        ready = [(one, self.callbacks.get(one)) for one, _ in self.epoll.poll(pause)]
        for descriptor, callback in ready:
            # An earlier callback may have closed it, and opened another with its number.
            if callback and callback is self.callbacks.get(descriptor):
                callback()
