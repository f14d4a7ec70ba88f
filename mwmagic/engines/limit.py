"""A time limit for what is awaited."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable

__all__ = ["within"]

T = TypeVar("T")


async def within(seconds: float, awaited: Awaitable[T]) -> T:
    """Return the result of what is awaited; cancel it when the time is up.

    Until Python 3.12 `asyncio.wait_for` loses a cancellation that comes just as what it waits for
    is done. A loop that should have been cancelled then goes on for ever.
    """
    task = asyncio.ensure_future(awaited)
    try:
        await asyncio.wait({task}, timeout=seconds)
    finally:
        late = not task.done()
        if late:
            task.cancel()
            await asyncio.wait({task})
    if late and task.cancelled():
        raise asyncio.TimeoutError
    return task.result()
