"""The trials of a sweep: how far each is, and what their results say."""

from __future__ import annotations

import json
import math
import statistics
from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import TYPE_CHECKING, Any

from mwmagic.model.values import NOT_FINITE, Stored, finite
from mwmagic.record.metrics import rises

from .runs import Facts

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mwmagic.record import Record

__all__ = [
    "OPEN",
    "Group",
    "Trial",
    "TrialState",
    "TrialStatus",
    "groups",
    "matters_most",
    "ranked",
    "seconds_left",
]


@dataclass(frozen=True)
class Trial(Stored):
    """One combination of parameters, and which repetition of it this is, from 0.

    One that a study suggests has its number there, and no parameters before.
    """

    number: int = 0
    params: dict[str, Any] = field(default_factory=dict)
    repeat: int = 0
    study_number: int | None = None

    @property
    def key(self) -> str:
        """What two trials have in common that try the same."""
        return json.dumps([finite(self.params), self.repeat], sort_keys=True)

    @property
    def typed(self) -> dict[str, Any]:
        """Its parameters as they are set: a text in quotes, so that it is not read again."""
        return {
            name: repr(one) if isinstance(one, str) and one not in NOT_FINITE else one
            for name, one in self.params.items()
        }


class TrialState(str, Enum):
    """How far a trial is; those that are waiting or were interrupted are still to be run."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    PRUNED = "pruned"
    INTERRUPTED = "interrupted"

    @property
    def over(self) -> bool:
        """Whether nothing of it is left to do."""
        return self in (TrialState.FINISHED, TrialState.FAILED, TrialState.PRUNED)

    @property
    def good(self) -> bool:
        """Whether it gave what it was run for, or was ended for a reason that was given."""
        return self in (TrialState.FINISHED, TrialState.PRUNED)


OPEN = (TrialState.WAITING, TrialState.INTERRUPTED)


@dataclass(frozen=True)
class TrialStatus:
    """A trial, how far it is, and its latest run, if it has been launched."""

    trial: Trial
    state: TrialState
    facts: Facts | None = None
    record: Record | None = None

    @property
    def known(self) -> Facts:
        """What is known of it: of one that was not launched, its parameters."""
        return self.facts or Facts(0, "", "", parameters=self.trial.params)

    def value(self, metric: str) -> float | None:
        """Return the best value of a metric in a finished trial."""
        if self.facts is None or self.state is not TrialState.FINISHED:
            return None
        found = self.facts.best.get(metric, self.facts.last.get(metric))
        return None if found is None or not math.isfinite(found) else found


@dataclass(frozen=True)
class Group:
    """A combination of parameters, with the results of its repetitions."""

    params: dict[str, Any]
    trials: list[int]
    results: list[float]

    @property
    def mean(self) -> float:
        """The mean of the results."""
        return statistics.fmean(self.results)

    @property
    def spread(self) -> float | None:
        """Their standard deviation; None of a single one."""
        return statistics.stdev(self.results) if len(self.results) > 1 else None


def groups(outcomes: Iterable[TrialStatus], metric: str) -> list[Group]:
    """Return the combinations with results, the best first."""
    found: dict[str, Group] = {}
    for one in outcomes:
        value = one.value(metric)
        if value is not None:
            key = json.dumps(one.trial.params, sort_keys=True)
            group = found.setdefault(key, Group(one.trial.params, [], []))
            group.trials.append(one.trial.number)
            group.results.append(value)
    sign = -1 if rises(metric) else 1
    return sorted(found.values(), key=lambda one: sign * one.mean)


def ranked(outcomes: Iterable[TrialStatus], metric: str) -> list[TrialStatus]:
    """Return trials as a table has them: the best first, and those last that have no result.

    Repetitions stand together, by their mean; a trial that is going by its best value so far.
    """
    trials = list(outcomes)
    means = {number: one.mean for one in groups(trials, metric) for number in one.trials}
    sign = -1 if rises(metric) else 1

    def place(one: TrialStatus) -> tuple[float, ...]:
        value = means.get(one.trial.number)
        if value is None and one.state in (TrialState.RUNNING, TrialState.PRUNED):
            value = one.known.best.get(metric)
        if value is None or not math.isfinite(value):
            return 1, _LATER.index(one.state), one.trial.number
        return 0, sign * value, one.trial.number

    return sorted(trials, key=place)


_LATER = (
    TrialState.RUNNING,
    TrialState.FINISHED,
    TrialState.PRUNED,
    TrialState.FAILED,
    TrialState.INTERRUPTED,
    TrialState.WAITING,
)
"""The order of the trials that have no result."""


LEAST_ENDED_COUNT = 3
"""After how many trials a line estimates how long the others will take."""


def seconds_left(outcomes: Iterable[TrialStatus], since: float, now: float) -> float | None:
    """Return how long the trials will take that are not over, at the pace since a moment.

    The pace counts how many run at once, and the pauses between them. None if it cannot be right:
    few trials have ended since, fewer than run at once, or some took much longer than others.
    """
    trials = list(outcomes)
    ended = [
        (one.known.started, one.known.seconds)
        for one in trials
        if one.state.over and one.known.started is not None and one.known.seconds is not None
        if one.known.started >= since
    ]
    started = [one.known.started for one in trials if one.state is TrialState.RUNNING]
    if len(ended) < max(LEAST_ENDED_COUNT, len(started)):
        return None
    took = [seconds for _, seconds in ended]
    mean = statistics.fmean(took)
    if statistics.pstdev(took) > mean / 2:
        return None
    pace = (max(map(sum, ended)) - min(one for one, _ in ended)) / len(ended)
    going = [max(mean - (now - one), 0.0) for one in started if one is not None]
    waiting = sum(one.state in OPEN for one in trials)
    return max([pace * (waiting + sum(going) / mean if mean else 0.0), *going])


LEAST_RESULTS_COUNT = 7
"""How many results show which parameter matters most: fewer are alike by chance."""

EXPLAINED_RATIO = 0.5
"""The least part of the results' variance that the parameter must explain, and twice the next's."""

SHUFFLES_COUNT, CHANCE_RATIO = 200, 0.05
"""How often the results are shuffled, and how often a parameter may then explain as much."""

LEVELS_COUNT = 3
"""In how many parts of equal size the values of a range are put, which were tried once each."""


def matters_most(outcomes: Iterable[TrialStatus], metric: str) -> tuple[str, float] | None:
    """Return the parameter whose values explain most of the results' variance, and its part.

    That part is the variance within its values against that of all results (R squared, adjusted
    to how many values there are). None if the data do not say it: few results, values that cannot
    be put together, no other parameter to compare it with, no clear lead, or a part that shuffled
    results have as well.
    """
    known = [(one.trial.params, one.value(metric)) for one in outcomes]
    pairs = [(params, value) for params, value in known if value is not None]
    results = [value for _, value in pairs]
    if len(pairs) < LEAST_RESULTS_COUNT or not statistics.pvariance(results):
        return None
    found = {name: _levels([params.get(name) for params, _ in pairs]) for name in pairs[0][0]}
    levels = {name: one for name, one in found.items() if one}
    if len(levels) < 2:  # noqa: PLR2004 - there is nothing to compare it with
        return None
    parts = {name: _explained(one, results) for name, one in levels.items()}
    (name, part), (_, second), *_ = sorted(parts.items(), key=lambda pair: -pair[1])
    if part < EXPLAINED_RATIO or part < 2 * second:
        return None
    shuffled, random, chance = list(results), Random(0), 0  # noqa: S311 - no secret
    for _ in range(SHUFFLES_COUNT):
        random.shuffle(shuffled)
        chance += max(_explained(one, shuffled) for one in levels.values()) >= part - 1e-9
        if chance > CHANCE_RATIO * SHUFFLES_COUNT:
            return None
    return name, part


def _levels(values: Sequence[Any]) -> list[int]:
    """Return for each value which of a few it is; nothing if they are all the same, or all differ.

    The numbers of a range, each of which was tried once, are put in parts of equal size.
    """
    texts = [json.dumps(one, sort_keys=True) for one in values]
    order = list(dict.fromkeys(texts))
    if len(order) < 2:  # noqa: PLR2004
        return []
    if min(Counter(texts).values()) > 1:
        return [order.index(one) for one in texts]
    if len(values) < 2 * LEVELS_COUNT or not all(type(one) in (int, float) for one in values):
        return []
    places = {value: at for at, value in reversed([*enumerate(sorted(values))])}
    return [places[one] * LEVELS_COUNT // len(values) for one in values]


def _explained(levels: Sequence[int], results: Sequence[float]) -> float:
    """Return the part of the results' variance that their levels explain, adjusted; 0 if none."""
    mean, parts = statistics.fmean(results), dict[int, list[float]]()
    for level, value in zip(levels, results, strict=True):
        parts.setdefault(level, []).append(value)
    free = len(results) - len(parts)
    total = sum((one - mean) ** 2 for one in results)
    between = sum(len(one) * (statistics.fmean(one) - mean) ** 2 for one in parts.values())
    return max(1 - (1 - between / total) * (len(results) - 1) / free, 0.0) if free else 0.0
