"""Collects the signs of why a run's steps are slow, and whether its memory will last."""

from __future__ import annotations

from collections import defaultdict, deque
from typing import TYPE_CHECKING

from mwmagic.model.slowness import MemoryForecast
from mwmagic.slowness import LEAST_COUNT, judge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mwmagic.logs import Guard
    from mwmagic.model.cluster import Task
    from mwmagic.model.machine import MachineStatus
    from mwmagic.model.slowness import Slowdown, Window

    from .process import TaskProcess

__all__ = ["Growth", "SlowSteps"]

WINDOWS_LIMIT = 32
"""The windows of a task that are kept."""

LOOKS_LIMIT = 10
"""The newest looks at a process that say whether it is stopped now and then, one a second."""

SHARE_RATIO = 0.15
"""How far the shares of a step may be apart in two verdicts that say the same."""

FORECAST_EPOCHS = 100
"""Memory that lasts longer is no news."""

LEAST_EPOCHS = 5
"""Epochs whose memory has to have grown alike."""

LEAST_BYTES = 10 * 2**20
"""The least growth in an epoch that is no noise of an allocator."""

ALIKE_RATIO = 3.0
"""How many times the least growth the largest may be."""


class SlowSteps:
    """Why the steps of a run's current attempt are slow, and whether its memory will last."""

    def __init__(self, peers: Iterable[Task], note: Callable[..., None], guard: Guard) -> None:
        self.verdict: Slowdown | None = None
        self.forecast: MemoryForecast | None = None
        self._peers = tuple(map(str, peers))
        self._note = note
        self._guard = guard
        self._attempt = 0
        self._reset()

    def _reset(self) -> None:
        self._windows: dict[str, deque[Window]] = defaultdict(lambda: deque(maxlen=WINDOWS_LIMIT))
        self._looks: dict[str, deque[bool]] = defaultdict(lambda: deque(maxlen=LOOKS_LIMIT))
        self._growth: dict[str, Growth] = defaultdict(Growth)

    def _at(self, process: TaskProcess) -> str:
        """Return a process's task; what is known of an earlier attempt is forgotten."""
        if process.attempt > self._attempt:
            self._attempt = process.attempt
            self._reset()
        return str(process.task)

    def measured(self, process: TaskProcess, window: Window) -> None:
        """Take in where the time of some steps went, and judge again."""
        task = self._at(process)
        own = self._windows[task]
        if own and window.first <= own[-1].first:  # another training
            self._windows.clear()
        self._windows[task].append(window)
        windows = {name: self._windows[name] for name in self._peers}
        if all(len(each) >= LEAST_COUNT for each in windows.values()):
            stopped = {name: sum(looks) / LOOKS_LIMIT for name, looks in self._looks.items()}
            self._found(self._guard.call("slowness", None, judge, windows, stopped))

    def _found(self, found: Slowdown | None) -> None:
        """Take a verdict; one that only differs in its numbers is not said again."""
        before = self.verdict
        if found and before and _is_like(found, before):
            return
        self.verdict = found
        if found:
            self._note("slow", **found.as_json())

    def looked(self, process: TaskProcess, machines: Iterable[MachineStatus]) -> None:
        """Take in the state of a process, and the memory that it uses."""
        task = self._at(process)
        self._looks[task].append(process.usage.get("state") == "T")
        latest, size = process.output.training.latest, process.usage.get("memory")
        if latest is None or latest.epoch is None or not size:
            return
        growth = self._growth[task]
        growth.seen(latest.epoch, float(size))
        machine = next((one for one in machines if task in one.tasks), None)
        if growth.per_epoch and machine and machine.machine and machine.used is not None:
            free = max(machine.machine.memory - machine.used, 0)
            together = sum(self._growth[name].per_epoch for name in machine.tasks)
            left = int(free / together)
            needed = (latest.epochs or FORECAST_EPOCHS) - latest.epoch
            fits = left >= min(needed, FORECAST_EPOCHS)
            self.forecast = None if fits else MemoryForecast(task, growth.per_epoch, left)
        elif self.forecast and self.forecast.task == task:
            self.forecast = None


def _is_like(one: Slowdown, other: Slowdown) -> bool:
    """Return whether two verdicts say about the same."""
    same = (one.cause, one.task, one.when) == (other.cause, other.task, other.when)
    return same and abs(one.share - other.share) < SHARE_RATIO


class Growth:
    """The memory of one process at the beginnings of its epochs."""

    def __init__(self) -> None:
        self._sizes: list[float] = []
        self._epoch = 0

    def seen(self, epoch: int, size: float) -> None:
        """Note how many bytes it uses; the first look in an epoch counts."""
        if epoch < self._epoch:
            self._sizes = []  # another training
        if epoch == self._epoch + 1 or not self._sizes:
            self._sizes = [*self._sizes, size][-LEAST_EPOCHS - 1 :]
        elif epoch > self._epoch:
            self._sizes = [size]  # epochs were too short to be seen
        self._epoch = epoch

    @property
    def per_epoch(self) -> float:
        """By how many bytes it grows in each epoch; 0 if it does not grow steadily."""
        steps = [
            after - before for before, after in zip(self._sizes, self._sizes[1:], strict=False)
        ]
        if len(steps) < LEAST_EPOCHS or min(steps) < LEAST_BYTES:
            return 0.0
        return sum(steps) / len(steps) if max(steps) <= ALIKE_RATIO * min(steps) else 0.0
