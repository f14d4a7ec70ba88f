"""Watches the progress of a run's tasks, and acts when there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mwmagic import gang as g
from mwmagic.errors import SupervisorError

from .examine import Examiner, ask
from .watchdog import Watchdog

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mwmagic.logs.guard import Guard
    from mwmagic.model.cluster import Task
    from mwmagic.model.findings import Examination, Position, Stall
    from mwmagic.model.options import ClusterOptions
    from mwmagic.record import RunDirectory

    from .process import TaskProcess
    from .processes import Processes

__all__ = ["Stalls"]

EVALUATED_SECONDS = 5.0
"""Idle time after which an evaluator is taken to wait for a checkpoint that never comes."""


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
            watched[g.Role.AUXILIARY] = self._evaluation
        watchdog = watched.get(self._roles[process.task])
        if watchdog is not None:
            cpu = float(process.usage["cpu"])
            watchdog.seen(self._processes.key(process), time=now, size=process.size, cpu=cpu)

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
        return [task for task, role in self._roles.items() if role is g.Role.AUXILIARY]

    def gone(self, process: TaskProcess) -> None:
        """Forget a process that ended."""
        key = self._processes.key(process)
        self._examiner.watchdog.gone(key)
        self._evaluation.gone(key)

    def examine(self) -> None:
        """Find out where each task is; the record then says."""
        if not self._processes.alive():
            raise SupervisorError("no task has a process whose stack could be shown")
        self._examiner.examine()

    def locate(self) -> None:
        """Have each task write where it is, before it is ended; its exit then says."""
        for process in self._processes.alive():
            if self._roles[process.task] is g.Role.PEER and process.place is None:
                process.place = ask(self._processes, process)

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
                process.stalled = stall.seconds
                self._processes.kill(process)
        self._changed()

    def resumed(self) -> None:
        """Note that the stall is over."""
        self._directory.event("resumed")
        self._changed()
