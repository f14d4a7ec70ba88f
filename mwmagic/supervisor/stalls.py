"""Watches the progress of a run's tasks, finds out where they are, and acts when there is none."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mwmagic import gang as g
from mwmagic.diagnosis import why_stalled
from mwmagic.diagnosis.observation import parse, positions
from mwmagic.errors import SupervisorError
from mwmagic.model.findings import Examination, Stall, Whereabouts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from mwmagic.diagnosis.observation import Stack
    from mwmagic.logs import Guard
    from mwmagic.model.cluster import Task
    from mwmagic.model.findings import Position, Remark
    from mwmagic.model.options import ClusterOptions
    from mwmagic.record import RunDirectory

    from .process import TaskProcess
    from .processes import Processes

__all__ = ["Dump", "Examiner", "Stalls", "Watchdog"]

EVALUATED_SECONDS = 5.0
"""Idle time after which an evaluator is taken to wait for a checkpoint that never comes."""

IDLE_CORES = 0.05
"""Cores that a task may use and still count as idle, since waiting threads poll."""

DUMP_SECONDS = 2.0
"""Time limit for a process to write its stack."""

POLL_SECONDS = 0.05
"""Pause between two looks at the file of stacks."""


class Stalls:
    """Detects the stalls of a run, and acts on them."""

    def __init__(
        self,
        processes: Processes,
        roles: Mapping[Task, g.Role],
        options: ClusterOptions,
        directory: RunDirectory,
        changed: Callable[[], None],
        *,
        guard: Guard,
    ) -> None:
        self._processes = processes
        self._roles = roles
        self._restarts = options.on_stall == "restart"
        self._directory = directory
        self._changed = changed
        self._examiner = Examiner(processes, self, options.stall_timeout, guard)
        self._evaluation = Watchdog(EVALUATED_SECONDS)

    @property
    def current(self) -> Stall | None:
        """The stall that the run is in, if it is in one."""
        return self._examiner.stall

    @property
    def examined(self) -> int:
        """How many times the tasks were examined."""
        return self._examiner.times

    def watch(self, process: TaskProcess, now: float, *, evaluating: bool) -> None:
        """Note what a process did so far; evaluators count once training is done."""
        watched = {g.Role.PEER: self._examiner.watchdog}
        if evaluating:
            watched[g.Role.EVALUATOR] = self._evaluation
        watchdog = watched.get(self._roles[process.task])
        if watchdog is not None:
            cpu = float(process.usage["cpu"])
            watchdog.seen(self._processes.key(process), time=now, size=process.output.size, cpu=cpu)

    def hold(self, now: float) -> None:
        """Give the tasks the full time again: one of them waits for a person."""
        self._examiner.watchdog.hold(now)

    def judge(self, now: float, *, running: bool) -> None:
        """Report a stall once; see `Examiner.judge`."""
        self._examiner.judge(now, running=running)

    def evaluated(self, now: float) -> list[Task]:
        """Return the evaluators, once they are idle."""
        if not self._evaluation.stalled(now):
            return []
        return [task for task, role in self._roles.items() if role is g.Role.EVALUATOR]

    def gone(self, process: TaskProcess) -> None:
        """Forget a process that ended."""
        key = self._processes.key(process)
        self._examiner.watchdog.gone(key)
        self._evaluation.gone(key)

    def examine(self) -> None:
        """Find out where each task is; the record then says."""
        if not self._processes.alive():
            raise SupervisorError("no task is running, so there are no stacks to show")
        self._examiner.examine()

    def locate(self) -> None:
        """Have each task write where it is, before it is ended; its exit then says."""
        for process in self._processes.alive():
            if self._roles[process.task] is g.Role.PEER and process.dump is None:
                process.dump = _ask(self._processes, process)

    async def positions(self) -> tuple[Position, ...]:
        """Return where each task is, which the record does not keep."""
        return await self._examiner.positions()

    # What the examiner reports.

    def located(self, found: Examination) -> None:
        """Keep where each task is."""
        self._directory.save_stacks(found)
        self._changed()

    def unexamined(self, error: Exception) -> None:
        """Note why it could not be found out where the tasks are."""
        self._directory.event("unexamined", error=f"{type(error).__name__}: {error}")

    def stalled(self, stall: Stall) -> None:
        """Record a stall, and kill the task that holds up the others if that was requested."""
        self._directory.event("stalled", **stall.as_json())
        guilty = [one for one in self._processes.alive() if str(one.task) == stall.guilty]
        if self._restarts:
            for process in guilty:
                process.stalled = stall
                self._processes.kill(process)
        self._changed()

    def resumed(self) -> None:
        """Note that the stall is over."""
        self._directory.event("resumed")
        self._changed()


@dataclass
class _Task:
    """What a task had done when it was last looked at."""

    size: int
    cpu: float
    seen: float


@dataclass
class Watchdog:
    """Watches the output and the CPU time of a gang's tasks.

    A gang whose tasks are all silent and idle is stuck: a task that waits inside a collective does
    nothing, and neither does the one that it waits for. A single task that computes, or prints, is
    progress. After `timeout` seconds without any the gang counts as stalled, or never if that is 0.
    """

    timeout: float
    _tasks: dict[str, _Task] = field(default_factory=dict)
    _active: float = 0.0
    _looked: float = 0.0

    def seen(self, task: str, *, time: float, size: int, cpu: float) -> None:
        """Note what a task did so far."""
        self._looked = max(self._looked, time)
        last = self._tasks.get(task)
        if last is None:
            self._tasks[task] = _Task(size, cpu, time)
            self._active = max(self._active, time)
            return
        span = max(time - last.seen, 1e-3)
        busy = cpu - last.cpu > IDLE_CORES * span
        if busy or size != last.size:
            self._active = max(self._active, time)
        last.size, last.cpu, last.seen = size, cpu, time

    def hold(self, time: float) -> None:
        """Note that a person is waited for, which is no lack of progress."""
        self._active = max(self._active, time)

    def gone(self, task: str) -> None:
        """Forget a task whose process ended; the others get the full time again."""
        self._tasks.pop(task, None)
        self._active = self._looked

    def idle(self, time: float) -> float:
        """Return for how many seconds no task made progress."""
        return time - self._active if self._tasks else 0.0

    def stalled(self, time: float) -> bool:
        """Return whether the gang is stuck."""
        return bool(self._tasks) and 0 < self.timeout <= self.idle(time)


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


class Examiner:
    """Finds out where the tasks of a run are, and whether they make progress.

    `stall` is why the run makes none at the moment; `times` counts the examinations.
    """

    def __init__(self, source: Processes, listener: Stalls, patience: float, guard: Guard) -> None:
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
        apart = await self._source.apart()
        found, where = await self._locate()
        if not self._stalled:  # any more
            return
        names = [one.task for one in where if one.task in peers]
        guilty = next(iter([*names, *peers]), None)
        why = apart or self._guard.call("stall", None, self._why, found)
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
        no_stack = {str(one.task): one.no_stack for one in alive if one.no_stack is not None}
        where = positions(found, states, no_stack)
        texts = {name: stack.text for name, stack in found.items() if stack is not None}
        self._listener.located(Examination(where, texts))
        return found, where

    async def _stacks(self, alive: Sequence[TaskProcess]) -> dict[str, Stack | None]:
        """Have processes write their stacks, and return them by task."""
        await self._refresh(alive)
        dumps = {str(one.task): _ask(self._source, one) for one in alive}
        pending = {task: dump for task, dump in dumps.items() if dump is not None}
        deadline = time.monotonic() + DUMP_SECONDS
        while pending and time.monotonic() < deadline:
            await asyncio.sleep(POLL_SECONDS)
            await self._refresh([one for one in alive if str(one.task) in pending])
            no_stack = {str(one.task) for one in alive if one.no_stack is not None}
            pending = {
                task: dump
                for task, dump in pending.items()
                if task not in no_stack and not dump.complete()
            }
        return {task: dump.stack() if dump else None for task, dump in dumps.items()}

    async def _refresh(self, processes: Sequence[TaskProcess]) -> None:
        await asyncio.gather(*(self._source.refresh(one) for one in processes))


def _ask(source: Processes, process: TaskProcess) -> Dump | None:
    """Have a process write its stack, unless it is only starting."""
    path = process.paths.stacks
    process.no_stack = None if path.exists() else Whereabouts.NOT_BEGUN
    if process.no_stack is not None:
        return None
    dump = Dump(path, process.script)
    source.dump(process)
    return dump
