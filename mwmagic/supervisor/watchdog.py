"""Detects that a live gang makes no progress."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Watchdog"]

IDLE_CORES = 0.05
"""Cores that a task may use and still count as idle, since waiting threads poll."""


@dataclass
class _Task:
    """What a task had done when it was last looked at."""

    size: int
    cpu: float
    seen: float


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
