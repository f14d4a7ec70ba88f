"""Detects that a live gang makes no progress."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Watchdog"]

IDLE_CORES = 0.05
"""Cores that a task may use and still count as idle, since waiting threads poll."""


@dataclass
class _Task:
    """When a task was last active, and what it had done by then."""

    active: float
    size: int = 0
    cpu: float = 0.0
    seen: float = 0.0


@dataclass
class Watchdog:
    """Watches the output and the CPU time of a gang's tasks.

    A gang whose tasks are all silent and idle is stuck: a task that waits inside a
    collective does nothing, and neither does the one that it waits for. A single task
    that computes, or prints, is progress.

    Parameters
    ----------
    timeout : float
        Seconds without progress after which the gang counts as stalled; 0 is never.
    """

    timeout: float
    _tasks: dict[str, _Task] = field(default_factory=dict)

    def seen(self, task: str, *, time: float, size: int, cpu: float) -> None:
        """Note what a task did so far.

        Parameters
        ----------
        task : str
            Its name, with its attempt.
        time : float
            Monotonic seconds.
        size : int
            Bytes that it printed.
        cpu : float
            Seconds of CPU that it and its descendants used.
        """
        last = self._tasks.get(task)
        if last is None:
            self._tasks[task] = _Task(time, size, cpu, time)
            return
        span = max(time - last.seen, 1e-3)
        busy = cpu - last.cpu > IDLE_CORES * span
        if busy or size != last.size:
            last.active = time
        last.size, last.cpu, last.seen = size, cpu, time

    def gone(self, task: str) -> None:
        """Forget a task whose process ended; the others get the full time again."""
        self._tasks.pop(task, None)
        for other in self._tasks.values():
            other.active = max(other.active, other.seen)

    def idle(self, time: float) -> float:
        """Return for how many seconds no task made progress."""
        return min((time - task.active for task in self._tasks.values()), default=0.0)

    def stalled(self, time: float) -> bool:
        """Return whether the gang is stuck."""
        return bool(self._tasks) and 0 < self.timeout <= self.idle(time)
