"""The event loop: callbacks for ready descriptors, in order."""

from __future__ import annotations

import select

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


class Loop:
    """Calls back when descriptors are ready, in the order in which they became so.

    The kernel's ready list keeps that order, so exits are seen in the order in which they happened,
    even if this process could not run in the meantime.
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
        """Wait for ready descriptors, at most `pause` seconds, and call back."""
        ready = [(one, self.callbacks.get(one)) for one, _ in self.epoll.poll(pause)]
        for descriptor, callback in ready:
            # An earlier callback may have closed it and opened another with the same number.
            if callback and callback is self.callbacks.get(descriptor):
                callback()
