"""How far a task's training has come, from what it reports on its private line, or else prints.

The signs of why a run's steps are slow are collected here too, and whether its memory will last.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from mwmagic.agent.wire import parsed
from mwmagic.gang import TrainingPoint
from mwmagic.logs.progress import Progress, Update
from mwmagic.model.findings import MemoryForecast, Window
from mwmagic.model.ownership import is_module_name
from mwmagic.model.status import Reached
from mwmagic.model.values import (
    METRICS_LIMIT,
    NAME_CHARACTERS,
    REPORT_BYTES,
    decoded,
    decoded_all,
    encodable,
)
from mwmagic.slowness import LEAST_COUNT, judge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from mwmagic.logs import Guard
    from mwmagic.model.cluster import Task
    from mwmagic.model.findings import Slowdown
    from mwmagic.model.machine import MachineStatus

    from .process import TaskProcess

__all__ = [
    "Comparison",
    "FitVariables",
    "FurthestPoint",
    "Growth",
    "History",
    "Imports",
    "OutsideScope",
    "Report",
    "SlowSteps",
    "TooLate",
    "Training",
    "report_in",
]


_TRAINING = ("train", "print", "report")
"""The kinds of progress that say where training is: a bar may be one of `evaluate`."""

LARGEST_COUNT = 10**12
"""The largest number of an epoch, a step or a fit."""

_KINDS = ("train", "validation", "evaluate", "report")


@dataclass(frozen=True)
class History:
    """The values of a metric for each epoch after `start`, in the history that a `fit` returned.

    `fit` says which of the process it was, from 1.
    """

    fit: int
    name: str
    start: int
    values: tuple[float, ...]


@dataclass(frozen=True)
class Imports:
    """What a process has imported that it was not forked with, and how long each module took."""

    seconds: dict[str, float]


@dataclass(frozen=True)
class OutsideScope:
    """A `fit` of a model that was created outside the scope of the strategy over all workers."""


@dataclass(frozen=True)
class TooLate:
    """A variable that a warm process's program sets before an import that was over before."""

    name: str
    at: str


@dataclass(frozen=True)
class FitVariables:
    """The variables of live cells as a `fit` begins, the first of the process being 1.

    They are numbers, texts and lists of them, by name.
    """

    fit: int
    given: dict[str, Any]


Report = Update | History | FitVariables | Imports | OutsideScope | TooLate | Window


class Training:
    """The training of one process.

    Attributes
    ----------
    latest
        Where it is, and the latest value of each metric.
    began
        Where it was at first; without metrics.
    first
        The number of its first epoch: 1, or 0 if its program counts from there.
    unreadable
        What was wrong with the latest packet that was not a report.
    imports
        How long each module took that it imported itself, if they took long.
    outside
        Whether it trained a model that was created outside its strategy's scope.
    """

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self.latest: Update | None = None
        self.first = 1
        self.began: Reached | None = None
        self.unreadable: str | None = None
        self.furthest = FurthestPoint()
        self.imports: dict[str, float] = {}
        self.outside = False
        self._progress = Progress()
        self._reported: set[str] = set()
        self._placed = False  # its reports say where it is

    @property
    def reached(self) -> Reached | None:
        """How far it is, as a status says it."""
        latest = self.latest
        if latest is None:
            return None
        return Reached(
            kind=latest.kind,
            epoch=latest.epoch,
            epochs=latest.epochs,
            step=latest.step,
            steps=latest.steps,
            metrics=latest.metrics,
            seconds_per_step=latest.seconds_per_step,
            first=self.first,
        )

    @property
    def place(self) -> Reached | None:
        """The same without metrics, if it has counted an epoch or a step."""
        reached = self.reached
        if reached is None or (reached.epoch is None and reached.step is None):
            return None
        return replace(reached, metrics={})

    def printed(self, text: str) -> list[Update]:
        """Take the next text of the log; return its metrics that are not reported as well."""
        updates = self._guard.call("progress", None, self._progress.write, text, self._guard)
        if updates is None:
            self._progress = Progress()  # the old one's state may be anything
        return [self._unreported(update) for update in updates or ()]

    def _unreported(self, update: Update) -> Update:
        metrics = {n: value for n, value in update.metrics.items() if n not in self._reported}
        if len(metrics) < len(update.metrics):
            update = replace(update, metrics=metrics)
        if self._placed and self.latest is not None:
            known = {} if update.kind == "bar" else metrics
            self.latest = replace(self.latest, metrics={**self.latest.metrics, **known})
        else:
            self.latest = _merged(self.latest, update)
            self._moved(self.latest)
        return update

    def on_packet(self, data: str) -> Report | None:
        """Take a packet; return what it reports."""
        try:
            report = report_in(data)
        except ValueError as error:
            self.unreadable = str(error)
            return None
        if isinstance(report, Imports):
            self.imports = report.seconds
        elif isinstance(report, OutsideScope):
            self.outside = True
        elif isinstance(report, Update):
            self._reported |= report.metrics.keys()
            self._place(report)
            self.latest = _advanced(self.latest, report)
            self._moved(self.latest)
        return report

    def _moved(self, latest: Update) -> None:
        """Take in where it is now."""
        self.furthest.add(latest)
        self.began = self.began or self.place
        if latest.epoch is not None:
            self.first = min(self.first, max(latest.epoch, 0))

    def _place(self, report: Update) -> None:
        """Let reports say where it is from now on: what was printed may be ahead of the first."""
        if not self._placed and (report.step is not None or report.epoch is not None):
            self._placed = True
            self.furthest = FurthestPoint()


def _begins(latest: Update, update: Update) -> bool:
    """Return whether another training begins, to which the values of the last one do not belong.

    Keras reports the start of a `fit` before its first epoch.
    """
    if update.epoch is None:
        return update.kind == "train" and not update.metrics and latest.epoch is not None
    return update.kind != "validation" and update.epoch < (latest.epoch or update.epoch)


def _merged(latest: Update | None, update: Update) -> Update:
    """Return what a task reached: an evaluation or a heading does not hide the last metrics."""
    if latest is None:
        return update
    if update.kind == "bar" and latest.kind != "bar":
        return latest
    if _begins(latest, update):
        return update
    if latest.metrics.keys() <= update.metrics.keys():
        return update
    return replace(update, metrics={**latest.metrics, **update.metrics})


def _advanced(latest: Update | None, report: Update) -> Update:
    """Return what a task reached with a report, which may leave out what has not changed."""
    if latest is None:
        return report
    if report.kind == "evaluate":
        return latest if latest.kind in ("train", "report") else report
    if _begins(latest, report):
        return report
    metrics = {**latest.metrics, **report.metrics}
    if not _moves(latest, report):
        return replace(latest, metrics=metrics)
    pace = report.seconds_per_step
    if report.kind == latest.kind == "report":
        report = _filled(latest, report)
    if pace is None and report.kind == latest.kind:
        pace = latest.seconds_per_step
    return replace(report, metrics=metrics, seconds_per_step=pace)


def _moves(latest: Update, report: Update) -> bool:
    """Return whether a report says where training is, and is the one to say so."""
    if report.kind == "validation":
        return False
    inside = latest.kind == "train" and not latest.final  # an epoch of Keras's
    return report.kind == "train" or not (inside or (report.step is None and report.epoch is None))


def _filled(latest: Update, report: Update) -> Update:
    """Return a user's report with the place that it leaves out."""
    same = report.epoch in (None, latest.epoch)
    return replace(
        report,
        epoch=latest.epoch if report.epoch is None else report.epoch,
        epochs=latest.epochs if report.epochs is None else report.epochs,
        step=latest.step if report.step is None and same else report.step,
        steps=latest.steps if report.steps is None else report.steps,
    )


class FurthestPoint:
    """The furthest place that one process showed; the start if it showed none.

    `stepwise` says that it showed steps, since two attempts may differ within an epoch. `erratic`
    says that it went back, as several trainings in one program do: what is further cannot be said
    then.
    """

    def __init__(self) -> None:
        self.point = TrainingPoint()
        self.stepwise = self.erratic = False

    def add(self, latest: Update) -> None:
        """Take where the process is now."""
        if latest.kind not in _TRAINING or (latest.epoch is None and latest.step is None):
            return
        point = TrainingPoint(latest.epoch or 0, latest.step or 0)
        self.erratic |= point < self.point
        self.stepwise |= latest.step is not None
        self.point = max(self.point, point)


class Comparison:
    """Says which places of a run's processes can be compared."""

    def __init__(self) -> None:
        self._stepwise = self._erratic = False

    def of(self, furthest: FurthestPoint) -> TrainingPoint | None:
        """Return the place that a process came to; None if it is unknown.

        A process that shows none has not begun to train, in a run that showed steps before.
        """
        self._stepwise |= furthest.stepwise
        self._erratic |= furthest.erratic
        return furthest.point if self._stepwise and not self._erratic else None


def report_in(data: str) -> Report:
    """Read a packet."""
    if len(data) > REPORT_BYTES:
        raise ValueError(f"the report is longer than {REPORT_BYTES} bytes")
    said = parsed(data)
    if said.get("kind") == "imports":
        return _imports(said)
    if said.get("kind") == "late":
        return _late(said)
    if said.get("kind") == "outside":
        return OutsideScope()
    if said.get("kind") == "given":
        return _given(said)
    if said.get("kind") == "steps":
        return _window(said)
    return _history(said) if said.get("kind") == "history" else _update(said)


def _update(said: Mapping[str, Any]) -> Update:
    kind, metrics = said.get("kind"), said.get("metrics", {})
    if kind not in _KINDS:
        raise ValueError(f"not a kind of report: {kind!r:.100}")
    if not isinstance(metrics, dict) or len(metrics) > METRICS_LIMIT:
        raise ValueError("metrics are an object of names and numbers, and not too many")
    return Update(
        kind=kind,
        epoch=_count(said.get("epoch")),
        epochs=_count(said.get("epochs")),
        step=_count(said.get("step")),
        steps=_count(said.get("steps")),
        metrics=decoded_all({_name(name): value for name, value in metrics.items()}),
        final=said.get("final") is True,
        seconds_per_step=_positive(said.get("seconds_per_step")),
        samples=_positive(said.get("samples")),
    )


def _history(said: Mapping[str, Any]) -> History:
    fit, start = _count(said.get("fit")), _count(said.get("start"))
    name, values = said.get("name"), said.get("values")
    if fit is None or start is None or not isinstance(name, str) or not isinstance(values, list):
        raise ValueError("a history needs fit, start, name and values")
    return History(fit, _name(name), start, tuple(decoded(value) for value in values))


def _given(said: Mapping[str, Any]) -> FitVariables:
    fit, given = _count(said.get("fit")), said.get("given")
    if fit is None or not isinstance(given, dict) or len(given) > METRICS_LIMIT:
        raise ValueError("what is given is an object of names and values, and not too many")
    return FitVariables(fit, {_name(name): value for name, value in given.items()})


def _window(said: Mapping[str, Any]) -> Window:
    """Return the numbers of some steps, with lines that can be shown."""
    found = Window.from_json(said)
    texts = {name: getattr(found, name) for name in ("at_input", "at_main", "at_own", "peer")}
    hidden: dict[str, Any] = {
        name: None for name, text in texts.items() if not (text and text.isprintable())
    }
    return replace(found, **hidden)


def _imports(said: Mapping[str, Any]) -> Imports:
    seconds = said.get("seconds")
    if not isinstance(seconds, dict) or len(seconds) > METRICS_LIMIT:
        raise ValueError("imports are an object of modules and seconds, and not too many")
    took = {_name(name): _positive(value) for name, value in seconds.items()}
    return Imports({name: one for name, one in took.items() if one and is_module_name(name)})


def _late(said: Mapping[str, Any]) -> TooLate:
    name, at = said.get("name"), said.get("at")
    if not isinstance(name, str) or not isinstance(at, str):
        raise ValueError("a variable that is set too late needs a name and a line")  # noqa: TRY004 - one error for all bad packets
    return TooLate(_name(name), _name(at))


def _name(name: str) -> str:
    """Return a metric's name as every encoder accepts it."""
    if len(name) > NAME_CHARACTERS:
        raise ValueError(f"a metric's name is longer than {NAME_CHARACTERS} characters")
    return encodable(name)


def _count(value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > LARGEST_COUNT:
        raise ValueError(f"not a count: {value!r:.100}")
    return value


def _positive(value: object) -> float | None:
    number = None if value is None else decoded(value)
    return number if number is not None and 0 < number < float("inf") else None


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
