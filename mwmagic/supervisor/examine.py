"""Finds out where the tasks of a run are, on request and when they make no progress."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Protocol

from mwmagic.diagnosis import why_stalled
from mwmagic.diagnosis.seen import parse, positions
from mwmagic.model.findings import Examination, Stall, Whereabouts

from .watchdog import Watchdog

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from mwmagic.diagnosis import Seen
    from mwmagic.diagnosis.seen import Stack
    from mwmagic.logs.guard import Guard
    from mwmagic.model.findings import Position, Remark

    from .process import TaskProcess

__all__ = ["Dump", "Examiner", "Listener", "Source", "ask"]

DUMP_SECONDS = 2.0
"""Time limit for a process to write its stack."""

POLL_SECONDS = 0.05
"""Pause between two looks at the file of stacks."""


class Dump:
    """Waits for the stack that a process writes when it gets a signal."""

    def __init__(self, path: Path, script: str = "") -> None:
        self._path = path
        self._script = script
        self._start = self._size()
        self._last = self._start

    def _size(self) -> int:
        return self._path.stat().st_size if self._path.exists() else 0

    def complete(self) -> bool:
        """Return whether a stack was written and has not grown since the last look."""
        size, last = self._size(), self._last
        self._last = size
        return size == last and size > self._start

    def stack(self) -> Stack | None:
        """Return the stack; None if none was written."""
        if self._size() == self._start:
            return None
        with self._path.open("rb") as file:
            file.seek(self._start)
            return parse(file.read().decode("utf-8", "replace"), self._script)


class Source(Protocol):
    """The processes that an examiner looks at."""

    def alive(self) -> list[TaskProcess]:
        """Return the processes that are running."""

    def peers(self) -> list[str]:
        """Return the tasks that train and have a process."""

    async def refresh(self, process: TaskProcess) -> None:
        """Fetch a process's file of stacks, if it is on another disk."""

    def dump(self, process: TaskProcess) -> None:
        """Have a process write its stack."""

    def seen(self, found: Mapping[str, Stack | None]) -> list[Seen]:
        """Return the observations of the tasks that train, with the stacks that were found."""


class Listener(Protocol):
    """What an examiner reports to."""

    def located(self, found: Examination) -> None:
        """Record where each task is."""

    def unexamined(self, error: Exception) -> None:
        """Record why it could not be found out."""

    def stalled(self, stall: Stall) -> None:
        """React to a stall."""

    def resumed(self) -> None:
        """Take in that a stall is over."""


class Examiner:
    """Finds out where the tasks of a run are, and whether they make progress.

    Attributes
    ----------
    watchdog : Watchdog
        Watches the tasks' progress.
    stall : Stall or None
        Why the run makes no progress at the moment.
    times : int
        How many times the tasks were examined.
    """

    def __init__(self, source: Source, listener: Listener, patience: float, guard: Guard) -> None:
        self.watchdog = Watchdog(patience)
        self.stall: Stall | None = None
        self.times = 0
        self._source = source
        self._listener = listener
        self._guard = guard
        self._busy: asyncio.Task[None] | None = None
        self._stalled = False

    def examine(self) -> None:
        """Find out where each task is, unless an examination is under way."""
        if self._busy is None:
            self._busy = asyncio.create_task(self._examine())

    def judge(self, now: float, *, running: bool) -> None:
        """Report a stall once, and its end when there is progress again."""
        self._stalled = running and self.watchdog.stalled(now)
        if not self._stalled:
            self._resume()
        elif self.stall is None and self._busy is None:
            self._busy = asyncio.create_task(self._report(self.watchdog.idle(now)))

    def _resume(self) -> None:
        if self.stall is not None:
            self.stall = None
            self._listener.resumed()

    async def _examine(self) -> None:
        await self._locate()

    async def _report(self, seconds: float) -> None:
        """Report a stall, even if nothing can be found out about it."""
        peers = self._source.peers()
        found, where = await self._locate()
        if not self._stalled:  # any more
            return
        names = [one.task for one in where if one.task in peers]
        guilty = next(iter([*names, *peers]), None)
        why = self._guard.call("stall", None, self._why, found)
        self.stall = Stall(seconds, guilty, where, why)
        self._listener.stalled(self.stall)

    def _why(self, found: Mapping[str, Stack | None]) -> Remark | None:
        return why_stalled(self._source.seen(found))

    async def positions(self) -> tuple[Position, ...]:
        """Return where each task is, and tell the listener nothing."""
        alive = self._source.alive()
        states = {str(process.task): str(process.usage.get("state", "")) for process in alive}
        return positions(await self._stacks(alive), states)

    async def _locate(self) -> tuple[Mapping[str, Stack | None], tuple[Position, ...]]:
        """Return each task's stack and position."""
        found: Mapping[str, Stack | None] = {}
        alive = self._source.alive()
        states = {str(process.task): str(process.usage.get("state", "")) for process in alive}
        try:
            found = await self._stacks(alive)
        except Exception as error:  # noqa: BLE001 - whatever it is, the run is stalled all the same
            self._listener.unexamined(error)
        finally:
            self._busy = None
            self.times += 1
        deaf = {str(one.task): one.deaf for one in alive if one.deaf is not None}
        where = positions(found, states, deaf)
        texts = {name: stack.text for name, stack in found.items() if stack is not None}
        self._listener.located(Examination(where, texts))
        return found, where

    async def _stacks(self, alive: Sequence[TaskProcess]) -> dict[str, Stack | None]:
        """Have processes write their stacks, and return them by task."""
        await self._refresh(alive)
        dumps = {str(one.task): ask(self._source, one) for one in alive}
        pending = {task: dump for task, dump in dumps.items() if dump is not None}
        deadline = time.monotonic() + DUMP_SECONDS
        while pending and time.monotonic() < deadline:
            await asyncio.sleep(POLL_SECONDS)
            await self._refresh([one for one in alive if str(one.task) in pending])
            deaf = {str(one.task) for one in alive if one.deaf is not None}
            pending = {
                task: dump
                for task, dump in pending.items()
                if task not in deaf and not dump.complete()
            }
        return {task: dump.stack() if dump else None for task, dump in dumps.items()}

    async def _refresh(self, processes: Sequence[TaskProcess]) -> None:
        await asyncio.gather(*(self._source.refresh(one) for one in processes))


def ask(source: Source, process: TaskProcess) -> Dump | None:
    """Have a process write its stack, unless it is only starting."""
    path = process.paths.stacks
    process.deaf = None if path.exists() else Whereabouts.NOT_BEGUN
    if process.deaf is not None:
        return None
    dump = Dump(path, process.script)
    source.dump(process)
    return dump
