"""Requests to an agent of which several are under way, so that none waits for the way back."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Coroutine, Iterable

__all__ = ["PIECES", "in_order"]

PIECES = 8
"""How many pieces of a file are under way at the same time: half a megabyte."""

T = TypeVar("T")


async def in_order(requests: Iterable[Coroutine[None, None, T]]) -> AsyncGenerator[T, None]:
    """Yield what requests return, in their order; at the first error none is sent any more."""
    waiting: deque[asyncio.Task[T]] = deque()
    try:
        for request in requests:
            waiting.append(asyncio.create_task(request))
            if len(waiting) == PIECES:
                yield await _first(waiting)
        while waiting:
            yield await _first(waiting)
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def _first(waiting: deque[asyncio.Task[T]]) -> T:
    # Without a shield, `wait_for` in a request that has just been answered swallows that its
    # caller is cancelled.
    answer = await asyncio.shield(waiting[0])
    waiting.popleft()
    return answer
