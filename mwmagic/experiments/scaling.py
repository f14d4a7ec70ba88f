"""A scaling study: how fast a program trains with other numbers of workers.

It is stored as a sweep is, and its trials differ in the number of workers. Their measurements are
in the records of their runs, and nothing is computed before it is shown.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from mwmagic.model.findings import Window
from mwmagic.record.metrics import REPORTED, STEPS, frame_of, parsed
from mwmagic.record.reader import json_lines

from .series import Course
from .sweep import Plan, Sweep

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mwmagic.record import Record

    from .trials import TrialStatus

__all__ = [
    "MEASURABLE_SECONDS",
    "STEPS_COUNT",
    "STRONG",
    "WEAK",
    "Scaling",
    "ScalingPlan",
    "Size",
    "Speed",
    "StepMark",
    "Study",
    "marks",
    "measured",
    "speed_of",
    "study",
]

STEPS_COUNT = 200
"""How many steps are measured unless the user says otherwise."""

STRONG, WEAK = "strong", "weak"
"""A step has the same samples whatever the number of workers, or each worker adds its own."""

WARM_UP_RATIO = 0.1
"""The part of the steps that are measured which comes before them: the first ones are traced."""

WARM_UP_COUNT = 5
"""The fewest steps before them."""

PART_SECONDS = 0.5
"""The shortest stretch whose speed counts: a report may arrive 0.05 s late."""

MEASURABLE_SECONDS = 1.0
"""The shortest training of which a speed is shown."""

PARTS_COUNT = 5
"""Into how many parts a training is divided, whose speeds differ by what is called its spread."""

WINDOWS_COUNT = 3
"""The fewest windows of steps that say how long the workers wait for each other."""

SAME_RATIO = 0.01
"""How far two counts of samples may differ to be the same."""


@dataclass(frozen=True)
class ScalingPlan(Plan):
    """What a scaling study runs: beside a sweep's plan, how many steps and how samples grow."""

    steps: int = STEPS_COUNT
    mode: str = ""
    """``strong``, ``weak``, or empty if the samples of a step are to tell it."""
    cpus: int = 0
    """How many CPUs this machine had for them."""
    alone: dict[str, Any] = field(default_factory=dict)
    """The parameters with which the program trains in one process without a strategy."""


class Scaling(Sweep):
    """A scaling study as its folder has it, and as the records of its runs say.

    The parameters of a trial are ``workers``, what its program is given (``params``), the global
    batch if that is known, and whether it trains ``alone``, without a strategy.
    """

    word = "scaling"
    plans = ScalingPlan

    def __repr__(self) -> str:
        return f"<Scaling {self.number}: {len(self.trials())} trials of {self.plan.script}>"

    @property
    def key(self) -> str:
        """How the labels of its trials begin."""
        return f"{self.word}-{self.number}"

    @property
    def plan(self) -> ScalingPlan:
        """What it runs."""
        plan = super().plan
        assert isinstance(plan, ScalingPlan)  # noqa: S101 - for types
        return plan

    def study(self, mode: str = "") -> Study:
        """Return what was measured; a `mode` counts instead of the one that it was planned with."""
        return study(self.number, self.plan, self.outcomes(), mode)

    def frame(self) -> Any:  # noqa: ANN401 - pandas may be missing
        """Return a pandas DataFrame with a row for each number of workers."""
        return frame_of(self.study().rows())


class StepMark(NamedTuple):
    """A step of the training, counted from its beginning, and when it was done."""

    step: float
    wall: float
    epoch: int = 0
    samples: float | None = None


def marks(raws: Sequence[Mapping[str, Any]], tasks: Iterable[str]) -> list[StepMark]:
    """Return the steps that the first task of a run reported in its last attempt, or printed."""
    entries = [parsed(raw) for raw in raws]
    kinds = ("train", "print", "report")
    known = [one for one in entries if one and one["step"] is not None and one["kind"] in kinds]
    known = [one for one in known if one["source"] == REPORTED] or known
    attempt = max((one["attempt"] for one in known), default=0)
    for task in tasks:
        own = [one for one in known if one["task"] == task and one["attempt"] == attempt]
        if own:
            course = Course()
            return [
                StepMark(course.move(one), one["wall"], one["epoch"] or 0, one["samples"])
                for one in own
            ]
    return []


def waiting_ratio(raws: Iterable[Mapping[str, Any]], tasks: int) -> float | None:
    """Return in which part of a step all tasks of a run wait for each other; None if unknown.

    That is what the task waits that waits least, in the same steps.
    """
    by_first: dict[int, list[Window]] = {}
    attempts = [raw for raw in raws if raw.get("kind") == STEPS]
    last = max((raw.get("attempt", 0) for raw in attempts), default=0)
    for raw in attempts:
        window = Window.from_json(raw.get("steps"))
        if raw.get("attempt", 0) == last and window.wall > 0 and window.waits is not None:
            by_first.setdefault(window.first, []).append(window)
    whole = [own for own in by_first.values() if len(own) == tasks > 1]
    if len(whole) < WINDOWS_COUNT:
        return None
    return statistics.fmean(min((one.waits or 0.0) / one.wall for one in own) for own in whole)


@dataclass(frozen=True)
class Speed:
    """How fast a run trained: the steps and seconds that were measured, and those of its parts."""

    steps: float = 0.0
    seconds: float = 0.0
    rates: tuple[float, ...] = ()
    samples: float | None = None
    waits: float | None = None
    """In which part of a step all tasks wait for each other, if that is known."""

    @property
    def rate(self) -> float | None:
        """Steps a second; None if too little was measured."""
        return (
            self.steps / self.seconds if self.seconds >= MEASURABLE_SECONDS and self.steps else None
        )


def speed_of(seen: Sequence[StepMark], steps: int) -> Speed:
    """Return how fast a training was after its warm-up; `steps` is how many are to be measured.

    The time between two epochs, such as a validation, is left out, unless the epochs are short.
    """
    warm_up = max(WARM_UP_COUNT, steps * WARM_UP_RATIO)
    left = [one for one in seen if one.step >= seen[0].step + warm_up]
    windows: list[tuple[float, float]] = []
    start = begun = before = left[0] if left else None
    for mark in left[1:]:
        assert start is not None and begun is not None and before is not None  # noqa: S101, PT018
        if mark.epoch != before.epoch:
            if before.wall - begun.wall >= PART_SECONDS:
                start = mark
            begun = mark
        if mark.wall - start.wall >= PART_SECONDS and mark.step > start.step:
            windows.append((mark.step - start.step, mark.wall - start.wall))
            start = mark
        before = mark
    stride = max(1, math.ceil(len(windows) / PARTS_COUNT))
    parts = [_sum(windows[at : at + stride]) for at in range(0, len(windows), stride)]
    counts = [one.samples for one in left if one.samples]
    return Speed(
        *_sum(windows),
        rates=tuple(done / seconds for done, seconds in parts),
        samples=statistics.median(counts) if counts else None,
    )


def _sum(windows: Iterable[tuple[float, float]]) -> tuple[float, float]:
    steps, seconds = 0.0, 0.0
    for one in windows:
        steps, seconds = steps + one[0], seconds + one[1]
    return steps, seconds


def measured(record: Record, steps: int) -> Speed | None:
    """Return how fast a run trained; None if it reported no steps."""
    raws, tasks = list(json_lines(record.paths.metrics)), [*map(str, record.tasks)]
    seen = marks(raws, tasks)
    if not seen:
        return None
    return replace(speed_of(seen, steps), waits=waiting_ratio(raws, len(tasks)))


@dataclass(frozen=True)
class Size:
    """A number of workers, the trials with it, and what they measured.

    `throughput` is in samples a second, or in what is proportional to them.
    """

    workers: int
    alone: bool
    trials: tuple[TrialStatus, ...] = ()
    speeds: tuple[Speed | None, ...] = ()
    throughput: float | None = None
    spread: float = 0.0
    """The relative standard deviation of its throughput."""
    samples: float | None = None
    """The samples of a step of all workers together, if they are known."""
    speedup: float | None = None
    error: float = 0.0
    """The standard deviation of the speed-up."""

    @property
    def rate(self) -> float | None:
        """Steps a second; None if no trial measured enough."""
        rates = [one.rate for one in self.speeds if one and one.rate]
        return statistics.fmean(rates) if rates else None

    @property
    def waits(self) -> float | None:
        """In which part of a step all its workers wait for each other; None if that is unknown."""
        known = [one.waits for one in self.speeds if one and one.waits is not None]
        return statistics.fmean(known) if known else None

    @property
    def hosts(self) -> int:
        """On how many machines it ran."""
        return max((one.facts.hosts for one in self.trials if one.facts), default=1)


@dataclass(frozen=True)
class Study:
    """What a scaling study found."""

    number: int
    plan: ScalingPlan
    sizes: list[Size]
    mode: str = ""
    """How the samples of a step grow; empty if that is not known, or they do so otherwise."""
    asked: str = ""
    """How they do according to the user."""
    unknown: bool = False
    """Whether it is not known how many samples a step has, so that speeds cannot be compared."""

    @property
    def base(self) -> Size | None:
        """The smallest number of workers that was measured."""
        known = [one for one in self.sizes if one.throughput and not one.alone]
        return min(known, key=lambda one: one.workers, default=None)

    def ideal(self, size: Size) -> float | None:
        """Return the speed-up of a size if its workers lost no time to each other."""
        return size.workers / self.base.workers if self.base and not size.alone else None

    def efficiency(self, size: Size) -> float | None:
        """Return the part of the ideal speed-up that a size reaches."""
        ideal = self.ideal(size)
        return size.speedup / ideal if size.speedup and ideal else None

    def rows(self) -> list[dict[str, Any]]:
        """Return the results as JSON values, a row for each size."""
        return [
            {
                "workers": one.workers,
                "alone": one.alone,
                "runs": [trial.facts.number for trial in one.trials if trial.facts],
                "steps_per_second": one.rate,
                "samples_per_second": one.rate * one.samples if one.rate and one.samples else None,
                "speedup": one.speedup,
                "speedup_spread": one.error if one.speedup else None,
                "ideal": self.ideal(one),
                "efficiency": self.efficiency(one),
                "waits": one.waits,
                "hosts": one.hosts,
            }
            for one in self.sizes
        ]


def study(number: int, plan: ScalingPlan, outcomes: Sequence[TrialStatus], mode: str = "") -> Study:
    """Compute the results of a study from its trials."""
    sizes = _sizes(plan, outcomes)
    asked = mode or plan.mode
    known = [one for one in sizes if one.rate]
    counted = bool(known) and all(one.samples for one in known)
    mode = _growth(known) if counted else asked
    if not (counted or mode):
        return Study(number, plan, sizes, unknown=len(known) > 1)
    found = [_with_throughput(one, "" if counted else mode) for one in sizes]
    base = Study(number, plan, found).base
    return Study(number, plan, [_compared(one, base) for one in found], mode, asked)


def _sizes(plan: ScalingPlan, outcomes: Sequence[TrialStatus]) -> list[Size]:
    """Return the sizes in the order of their workers, the one without a strategy first."""
    together: dict[tuple[bool, int], list[TrialStatus]] = {}
    for one in outcomes:
        params = one.trial.params
        together.setdefault((not params.get("alone"), int(params["workers"])), []).append(one)
    found = []
    for (strategy, workers), trials in sorted(together.items(), key=lambda pair: pair[0]):
        records = [one.record if one.state.good else None for one in trials]
        speeds = tuple(measured(one, plan.steps) if one else None for one in records)
        counts = [one.samples for one in speeds if one and one.samples]
        samples = statistics.median(counts) if counts else trials[0].trial.params.get("batch")
        found.append(Size(workers, not strategy, tuple(trials), speeds, samples=samples))
    return found


def _growth(sizes: Sequence[Size]) -> str:
    """Return how the samples of a step grow with the workers; empty if they do so otherwise."""
    by_workers = {one.workers: one.samples or 0.0 for one in sizes if not one.alone}
    each = [samples / workers for workers, samples in by_workers.items()]
    for mode, counts in ((STRONG, list(by_workers.values())), (WEAK, each)):
        if len(counts) > 1 and max(counts) - min(counts) <= SAME_RATIO * max(counts):
            return mode
    return ""


def _with_throughput(size: Size, mode: str) -> Size:
    """Return a size with its throughput; without a mode, the samples of its step are known."""
    if not size.rate:
        return size
    relative = 1 if size.alone or mode == STRONG else size.workers
    per_step = relative if mode else size.samples or 0.0
    usable = [one for one in size.speeds if one and one.rate]
    rates = [one.rate or 0.0 for one in usable] if len(usable) > 1 else [*usable[0].rates]
    spread = statistics.stdev(rates) / statistics.fmean(rates) if len(rates) > 1 else 0.0
    return replace(size, throughput=size.rate * per_step, spread=spread)


def _compared(size: Size, base: Size | None) -> Size:
    if not size.throughput or base is None or not base.throughput:
        return size
    speedup = size.throughput / base.throughput
    error = 0.0 if size is base else speedup * math.hypot(size.spread, base.spread)
    return replace(size, speedup=speedup, error=error)
