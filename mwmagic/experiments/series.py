"""The tasks' metrics as points of a chart."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from mwmagic.record.metrics import (
    COUNT_LIMIT,
    REPORTED,
    USAGE,
    Preference,
    parsed,
    raw_entries,
    used,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from mwmagic.record import Record

__all__ = [
    "BY_TIME",
    "SAVED",
    "SPEED",
    "Course",
    "Key",
    "Point",
    "Scalar",
    "Scalars",
    "Series",
    "read_series",
    "scalars",
    "thinned",
]

T = TypeVar("T")

SPEED = "steps/s"
"""The metric that is computed from the times of the others."""

_MEGA_BYTES = 2**20

_USED = {
    "cpus": ("CPUs in use", 1.0),
    "memory": ("memory (MB)", _MEGA_BYTES),
    "read": ("disk reads (MB/s)", _MEGA_BYTES),
    "written": ("disk writes (MB/s)", _MEGA_BYTES),
    "received": ("network in (MB/s)", _MEGA_BYTES),
    "sent": ("network out (MB/s)", _MEGA_BYTES),
    "gpu": ("GPU (%)", 0.01),
    "gpu_memory": ("GPU memory (MB)", _MEGA_BYTES),
}
"""What a task uses: its name in a chart, and how much of it is 1 there."""

BY_TIME = tuple(name for name, _ in _USED.values())
"""The metrics whose x is seconds since the run began."""

SAVED = tuple(_USED[name][0] for name in ("cpus", "memory", "gpu"))
"""Those of them that a picture has, which offers no choice."""

SERIES_POINTS = 12_000
"""How many points are kept of all series together; beyond that, every second one is dropped."""

METRICS_READ_BYTES = 2**16
"""How much is read at a time."""

BEHIND_LIMIT = 32
"""A reader further behind than this many chunks skips what is between the chunks it reads."""

LARGEST, SMALLEST = 1e300, 1e-300
"""A chart has a gap for values beyond the first, and 0 for those below the second.

Its scales need room for arithmetic.
"""

SPACING_SECONDS = 0.1
"""Minimum time between two points of a series."""

ASIDE = ("bar", "evaluate")
"""The kinds of entries that are not from training."""

RATE_SECONDS = 0.5
"""Minimum time over which a speed is measured."""


def thinned(values: Sequence[T], count: int) -> list[T]:
    """Return at most so many of the values, evenly spread, the first and the last among them."""
    if len(values) <= count:
        return list(values)
    step = (len(values) - 1) / (count - 1)
    return [values[round(number * step)] for number in range(count)]


class Scalar(NamedTuple):
    """A value of a metric, and when it was recorded, in seconds since 1970."""

    step: int
    wall: float
    value: float


class Scalars:
    """The exact values of each metric of a run by step, or by epoch if no steps are known.

    If steps are known, the values at the ends of epochs are also there by epoch, as ``epoch/loss``.
    They are those of the first task that has the metric, of the entries that `see` got.
    """

    def __init__(self) -> None:
        self._tasks: dict[str, str] = {}
        self._courses: dict[tuple[str, int], Course] = {}
        self._stepped: set[str] = set()
        self._epochs: dict[str, tuple[int, int]] = {}  # the last attempt and epoch of each

    def see(self, entry: Mapping[str, Any]) -> None:
        """Note which task has which metrics."""
        for name in entry["metrics"]:
            self._tasks[name] = min(self._tasks.get(name, entry["task"]), entry["task"])

    def take(self, entry: Mapping[str, Any]) -> Iterator[tuple[str, Scalar]]:
        """Yield the values of an entry with their names.

        If a later value has the step of an earlier one, that and all after it are trained again.
        """
        attempt, wall = entry["attempt"], entry["wall"]
        course = self._courses.setdefault((entry["task"], attempt), Course())
        aside, ends = entry["kind"] in ASIDE, entry["final"]
        course.trained = course.trained or not aside
        if aside and course.trained:
            return  # an evaluation between epochs, with metrics of the same names
        x = max(-COUNT_LIMIT, min(round(course.move(entry)), COUNT_LIMIT))
        for name, value in entry["metrics"].items():
            if self._tasks[name] != entry["task"]:
                continue
            if not ends:
                self._stepped.add(name)
            if name not in self._stepped or not ends:
                yield name, Scalar(x, wall, value)
            if ends and entry["epoch"] and entry["step"] is not None:
                before, last = self._epochs.get(name, (0, 0))
                again = before == attempt  # another `fit` counts from 1
                epoch = max(entry["epoch"], last + 1 if again else 0)
                self._epochs[name] = (attempt, epoch)
                yield f"epoch/{name}", Scalar(epoch, wall, value)


def scalars(entries: Sequence[Mapping[str, Any]]) -> dict[str, list[Scalar]]:
    """Return the values of each metric of a run, as `Scalars` has them.

    Values of an earlier attempt that a later one trained again are left out.
    """
    reader = Scalars()
    for entry in entries:
        reader.see(entry)
    found: dict[str, list[Scalar]] = {}
    for entry in entries:
        for name, one in reader.take(entry):
            values = found.setdefault(name, [])
            while values and values[-1].step >= one.step:
                values.pop()
            values.append(one)
    return found


class Key(NamedTuple):
    """One line of a chart.

    Without a metric, its points mark where the second epoch and later ones begin; their
    values are the epochs' numbers.
    """

    task: str
    attempt: int
    metric: str | None


class Point(NamedTuple):
    """A value, numbered in the order of arrival.

    `x` is its step, or its epoch if no steps are known. `wall` is when it was recorded, in seconds
    since 1970, and `epoch` how many epochs were over, with their fraction, if that is known.
    """

    number: int
    key: Key
    x: float
    y: float | None
    wall: float = 0.0
    epoch: float | None = None


@dataclass
class Course:
    """How far a task has come in one attempt, on an axis that only grows."""

    x: float = 0.0
    start: float = 0.0
    epoch: int = 0
    base: float = 0.0
    last: float = 0.0
    trained: bool = False
    begun: tuple[float, int] = (0.0, 0)
    since: tuple[float, float] | None = field(default=None)

    def move(self, entry: Mapping[str, Any]) -> float:
        """Return the x value of an entry: its step counted over all epochs, else its epoch."""
        step, epoch, steps = entry.get("step"), entry.get("epoch"), entry.get("steps")
        if step is None:
            self.x = self.x if self.last else max(self.x, float(epoch or self.x + 1))
        elif entry["kind"] in ("train", "validation") and steps and epoch:
            if epoch < self.epoch:  # another `fit`
                self.start = self.x
            self.epoch = epoch
            self.x, self.last = self.start + (epoch - 1) * steps + step, float(step)
        else:
            if step < self.last:
                self.base += self.last
            self.last = float(step)
            self.x = self.base + step
        return self.x

    def begins(self, entry: Mapping[str, Any]) -> float | None:
        """Return where the epoch of an entry began, if another one came before; once for each."""
        epoch = entry["epoch"]
        if entry["step"] is None or not epoch or epoch == self.begun[1]:
            return None
        start = self.x - float(entry["step"])
        first, self.begun = not self.begun[1], (max(start, self.begun[0]), epoch)
        return None if first else self.begun[0]

    def speed(self, entry: Mapping[str, Any]) -> float | None:
        """Return the steps per second, or None while unknown.

        Keras's reports contain them, without validation and checkpoints; otherwise they
        are computed from the times of the entries.
        """
        if entry["source"] == REPORTED and entry["kind"] != "report":
            per_step = None if entry["final"] else entry["seconds_per_step"]
            return 1 / per_step if per_step else None
        wall = float(entry["wall"])
        if self.since is None or self.x < self.since[1]:
            self.since = (wall, self.x)
            per_step = entry.get("seconds_per_step") if entry.get("final") else None
            return 1 / per_step if per_step else None
        seconds, steps = wall - self.since[0], self.x - self.since[1]
        if seconds < RATE_SECONDS or steps <= 0:
            return None
        self.since = (wall, self.x)
        return steps / seconds


class _Place(NamedTuple):
    """Where a value is on the axes of a chart."""

    x: float
    y: float | None
    wall: float
    epoch: float | None


def _epochs(entry: Mapping[str, Any]) -> float | None:
    """Return how many epochs are over at an entry, with their fraction."""
    epoch, step, steps = (entry.get(name) for name in ("epoch", "step", "steps"))
    if not epoch:
        return None
    return epoch - 1 + step / steps if step and steps and step <= steps else float(epoch)


class Series:
    """The points of a run's charts, read from its record as it grows.

    `usage` says whether what the tasks use is among them, as the metrics of `BY_TIME`.
    """

    def __init__(self, path: Path, tasks: Collection[str], *, usage: bool = False) -> None:
        self._path, self._tasks, self._usage = path, tasks, usage
        self._offset = 0
        self._rest = b""
        self._points: list[Point] = []
        self._next = 0
        self._seen: Counter[Key] = Counter()
        self._since: dict[Key, float] = {}
        self._held: dict[Key, _Place] = {}
        self._stride = 1
        self._courses: dict[tuple[str, int], Course] = {}
        self._preference = Preference()
        self._stepped: set[Key] = set()  # those with values per step, not only per epoch

    @property
    def next(self) -> int:
        """The number of the next point."""
        return self._next

    @property
    def stepped(self) -> bool:
        """Whether x counts steps; else epochs."""
        return any(course.last for course in self._courses.values())

    @property
    def points(self) -> list[Point]:
        """The points kept, in the order of arrival."""
        return list(self._points)

    def read(self) -> bool:
        """Read what was added to the record, up to a limit; return whether there is more."""
        try:
            size = self._path.stat().st_size
        except FileNotFoundError:
            return False
        skip = (size - self._offset) // BEHIND_LIMIT - METRICS_READ_BYTES
        if skip > 0:
            self._offset, self._rest = self._offset + skip, b"{"  # the cut line will not parse
        if size > self._offset:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                self._feed(file.read(METRICS_READ_BYTES))
        if size <= self._offset:
            for key, place in self._held.items():  # the newest so far
                self._keep(key, place)
            self._held.clear()
        return size > self._offset

    def since(self, number: int, limit: int) -> tuple[list[Point], int]:
        """Return up to `limit` points from a number on, and the number after the last one."""
        start = bisect_left(self._points, number, key=lambda point: point.number)
        chosen = self._points[start : start + limit]
        whole = start + limit >= len(self._points)
        return chosen, self._next if whole else chosen[-1].number + 1

    def _feed(self, data: bytes) -> None:
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for entry in raw_entries(lines):
            if entry.get("kind") == USAGE:
                self._use(entry)
                continue
            found = parsed(entry)
            if found is not None and found["task"] in self._tasks:
                self._entry(found)
        if len(self._points) > SERIES_POINTS:
            self._thin()

    def _entry(self, entry: Mapping[str, Any]) -> None:
        task, attempt, aside = entry["task"], entry["attempt"], entry["kind"] in ASIDE
        course = self._courses.setdefault((task, attempt), Course())
        course.trained = course.trained or not aside
        if aside and course.trained:
            return  # an evaluation between epochs, with metrics of the same names
        self._retract({Key(task, attempt, name) for name in self._preference.add(entry)})
        left = self._preference.left(entry)
        if left is None:
            return
        x = course.move(entry)
        begun = course.begins(entry)
        if begun is not None:
            mark = _Place(begun, float(entry["epoch"]), entry["wall"], entry["epoch"] - 1.0)
            self._keep(Key(task, attempt, None), mark, sure=True)
        for metric, value in left["metrics"].items():
            key = Key(task, attempt, metric)
            if self._wanted(key, entry):
                self._add(key, x, value, entry)
        speed = course.speed(entry) if entry["step"] is not None else None
        if speed is not None:
            self._add(Key(task, attempt, SPEED), x, speed, entry)

    def _use(self, raw: Mapping[str, Any]) -> None:
        """Add what a task uses; a value that was never above 0 is left out."""
        found = used(raw) if self._usage else None
        if found is None or found["task"] not in self._tasks:
            return
        for name, (metric, unit) in _USED.items():
            key = Key(found["task"], found["attempt"], metric)
            value = found.get(name, 0.0)
            if value > 0 or (key in self._seen and name in found):
                y = float(f"{value / unit:.5g}")
                self._keep(key, _Place(found["seconds"], y, found["wall"], None))

    def _retract(self, keys: set[Key]) -> None:
        """Remove points read from a log before their metrics were first reported."""
        if any(key in self._seen for key in keys):
            self._points = [point for point in self._points if point.key not in keys]
            for key in keys:
                self._held.pop(key, None)

    def _wanted(self, key: Key, entry: Mapping[str, Any]) -> bool:
        """Return whether a value belongs in the chart: an epoch's mean does not if its steps do."""
        if entry["source"] == REPORTED and not entry["final"]:
            self._stepped.add(key)
        return not (entry["source"] == REPORTED and entry["final"] and key in self._stepped)

    def _add(self, key: Key, x: float, value: float, entry: Mapping[str, Any]) -> None:
        y = float(f"{value:.5g}") if abs(value) <= LARGEST else None
        y = 0.0 if y is not None and abs(y) < SMALLEST else y
        wall = float(entry["wall"])
        soon = 0 <= wall - self._since.get(key, -math.inf) < SPACING_SECONDS
        chosen = entry["source"] == REPORTED and entry["kind"] == "train"  # in each task the same
        place = _Place(x, y, wall, _epochs(entry))
        if soon and not chosen and y is not None and not entry.get("final"):
            self._held[key] = place
            return
        self._held.pop(key, None)
        self._since[key] = wall
        self._keep(key, place, sure=bool(entry.get("final")))

    def _keep(self, key: Key, place: _Place, *, sure: bool = False) -> None:
        self._seen[key] += 1
        if self._seen[key] % self._stride and not sure:
            return
        self._points.append(Point(self._next, key, *place))
        self._next += 1

    def _thin(self) -> None:
        """Drop every second point of each series, now and in future."""
        count: Counter[Key] = Counter()
        kept = []
        for point in self._points:
            count[point.key] += 1
            if count[point.key] % 2:
                kept.append(point)
        self._points = kept
        self._stride *= 2


def read_series(record: Record, *, usage: bool = False) -> Series:
    """Read the metrics of a run as far as they are written."""
    series = Series(record.paths.metrics, [str(task) for task in record.tasks], usage=usage)
    while series.read():
        pass
    return series
