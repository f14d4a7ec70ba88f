"""Sweeps and scaling studies in words: how trials begin and end, and what was found."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mwmagic.experiments.runs import usual_metrics
from mwmagic.experiments.scaling import MEASURABLE_SECONDS, STRONG, WEAK
from mwmagic.experiments.trials import OPEN, TrialState, groups, matters_most, ranked
from mwmagic.model.findings import Cause
from mwmagic.model.status import RunState
from mwmagic.model.values import counted

from .failure import headline
from .file import size_words
from .table import (
    Column,
    aligned,
    aligned_columns,
    curve_column,
    metric_column,
    parameter_column,
    short_name,
    took_text,
    value_text,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mwmagic.experiments.runs import Facts
    from mwmagic.experiments.scaling import ScalingPlan, Size, Speed, Study
    from mwmagic.experiments.sweep import Sweep
    from mwmagic.experiments.trials import Group, Trial, TrialStatus

__all__ = [
    "TrialTable",
    "as_csv",
    "begun_words",
    "ended_words",
    "findings",
    "interrupted_words",
    "memory_words",
    "open_words",
    "params_words",
    "resume_words",
    "scaling_cells",
    "scaling_lines",
    "scaling_notes",
    "scaling_words",
    "speed_words",
    "sweep_now",
    "sweep_words",
    "why_failed",
]


def params_words(params: Mapping[str, Any]) -> str:
    """Return a combination of parameters as ``units 64, lr 0.01``."""
    return ", ".join(
        f"{short_name(name, [*params])} {value_text(one)}" for name, one in params.items()
    )


def _trial_words(trial: Trial) -> str:
    again = [f"repetition {trial.repeat + 1}"] if trial.repeat else []
    what = ", ".join([*filter(None, [params_words(trial.params)]), *again])
    return f"trial {trial.number}" + (f" ({what})" if what else "")


def begun_words(trial: Trial, total: int, run: int) -> str:
    """Say that a trial begins."""
    return f"{_trial_words(trial)} of {total} is run {run}"


def ended_words(trial: Trial, facts: Facts, metric: str, *, pruned: str) -> str:
    """Say how a trial has ended; `pruned` is why it was ended early, if it was."""
    took = took_text(facts.seconds)
    if pruned and facts.state == RunState.STOPPED.value:
        how = f"ended early because {pruned}"
    elif facts.state == RunState.FAILED.value:
        how = f"failed: {why_failed(facts)}"
    elif facts.state != RunState.FINISHED.value:
        how = facts.state
    else:
        names = [metric] if metric else [*facts.best][:2]
        how = (
            ", ".join(
                f"{name} {value_text(facts.best[name])}" for name in names if name in facts.best
            )
            or "finished"
        )
    return f"trial {trial.number}: {how}" + (f", {took}" if took else "")


def why_failed(facts: Facts) -> str:
    """Say in a line why a run failed."""
    if not facts.failure:
        return "no task reported a cause"
    cause = Cause.from_json(facts.failure)
    return headline(cause) + (f": {cause.exception}" if cause.exception else "")


def memory_words(tasks: int, each: float, run: int, free: float) -> str:
    """Say that tasks which run at once may need more memory than there is."""
    return (
        f"{counted(tasks, 'worker')} at once may need {size_words(tasks * each)}: one used up to "
        f"{size_words(each)} in run {run}, and {size_words(free)} are free"
    )


def interrupted_words(one: TrialStatus) -> str:
    """Say that a trial which was under way begins again."""
    run = f": run {one.facts.number} was interrupted" if one.facts else ""
    return f"trial {one.trial.number} begins again{run}"


def findings(outcomes: Sequence[TrialStatus], metric: str) -> list[str]:
    """Say which trials failed alike, and which is best, or why none is."""
    lines, over = _failures(outcomes), all(one.state.over for one in outcomes)
    combinations = groups(outcomes, metric)
    if combinations:
        best, *others = combinations
        found = ("best: " if over else "best so far: ") + _best_words(best, outcomes, metric)
        alike = [str(trial) for one in others if one.mean == best.mean for trial in one.trials]
        if alike:
            more = len(alike) - ALIKE_LIMIT
            found += f"; as good: {', '.join(alike[:ALIKE_LIMIT])}"
            found += f" and {counted(more, 'other')}" if more > 0 else ""
        most = matters_most(outcomes, metric) if over else None
        if most is not None:
            varied = [*outcomes[0].trial.params]
            found += f"; {short_name(most[0], varied)} matters most ({most[1]:.0%} of the variance)"
        lines.append(found)
    elif any(one.state is TrialState.FINISHED for one in outcomes):
        lines.append(_no_best(outcomes, metric))
    elif over and any(one.state is TrialState.PRUNED for one in outcomes):
        lines.append("no trial finished, so none of them is the best")
    return lines


ALIKE_LIMIT = 5
"""How many trials are named that are as good as the best."""


def _best_words(best: Group, outcomes: Sequence[TrialStatus], metric: str) -> str:
    numbers = {one.trial.number: one.facts.number for one in outcomes if one.facts}
    trials = ", ".join(map(str, best.trials))
    runs = ", ".join(str(numbers[one]) for one in best.trials)
    several = "s" if len(best.trials) > 1 else ""
    facts = "; ".join(filter(None, [f"run{several} {runs}", params_words(best.params)]))
    spread = ""
    if best.spread is not None:
        spread = f" ± {best.spread:.2g} over {len(best.results)} repetitions"
    return f"trial{several} {trials} ({facts}), {metric} {value_text(best.mean)}{spread}"


def _no_best(outcomes: Sequence[TrialStatus], metric: str) -> str:
    """Say why no trial is best."""
    known = sorted({name for one in outcomes if one.facts for name in one.facts.last})
    if not known:
        return "no trial reported a metric, so none of them is the best"
    return f"no finished trial has the metric {metric!r}: there are {', '.join(known)}"


def sweep_words(number: int, outcomes: Sequence[TrialStatus], left: float | None = None) -> str:
    """Say how far a sweep is, and in how many seconds it is over, if that is known."""
    if all(one.state.over for one in outcomes):
        return f"sweep {number}, {_counts(outcomes)}"
    over = sum(one.state.over for one in outcomes)
    running = sum(one.state is TrialState.RUNNING for one in outcomes)
    text = f"sweep {number}: {over} of {counted(len(outcomes), 'trial')}"
    told = [f"{running} running"] if running else []
    told += [] if left is None else [_left_words(left)]
    return ", ".join([text, *told])


def _left_words(seconds: float) -> str:
    minutes = seconds / 60
    if minutes < 1:
        return "less than a minute left"
    if minutes < 90:  # noqa: PLR2004
        return f"about {minutes:.0f} min left"
    return f"about {minutes / 60:.2g} h left"


def resume_words(sweep: Sweep, command: str, outcomes: Sequence[TrialStatus] | None = None) -> str:
    """Say how far a sweep of any kind is that has not ended, and how it continues."""
    outcomes = sweep.outcomes() if outcomes is None else outcomes
    over, study = sum(one.state.over for one in outcomes), sweep.plan.study
    how, holds = f"{command} --resume {sweep.number}", ""
    if study:  # only a notebook has a variable that holds one
        how = f"%mw_sweep --resume {sweep.number} --study NAME"
        holds = f"; NAME is a variable that holds the Optuna study {study!r}"
    return (
        f"{sweep.name} is not over: {over} of {counted(len(outcomes), 'trial')} are; "
        f"`{how}` runs the others{holds}"
    )


def open_words(sweep: Sweep, outcomes: Sequence[TrialStatus], command: str) -> list[str]:
    """Say how a sweep continues, if it is not over and nobody runs it."""
    left = any(one.state in OPEN for one in outcomes) and not sweep.going
    return [resume_words(sweep, command, outcomes)] if left else []


def sweep_now(sweep: Sweep, command: str) -> tuple[TrialTable, list[str]]:
    """Return a sweep's trials in a table, and how far it is and what was found as lines."""
    outcomes = sweep.outcomes()
    metric = sweep.metric(outcomes)
    found = [sweep_words(sweep.number, outcomes), *findings(outcomes, metric)]
    return TrialTable(outcomes, metric), [*found, *open_words(sweep, outcomes, command)]


class TrialTable:
    """The trials of a sweep in a table, the best first; those that wait are last.

    With a `limit` only the first so many of them, and those that are running; `left` are others.
    """

    def __init__(
        self, outcomes: Sequence[TrialStatus], metric: str, limit: int | None = None
    ) -> None:
        every = ranked(outcomes, metric)
        first = len(every) if limit is None else limit
        running = [one for one in every[first:] if one.state is TrialState.RUNNING]
        self.trials = [*every[:first], *running]
        self.left = len(every) - len(self.trials)
        self._facts = [one.known for one in self.trials]
        there = {name for one in self._facts for name in one.best}
        chosen = [name for name in [metric, *usual_metrics(self._facts)] if name in there]
        self.metrics = list(dict.fromkeys(chosen))
        self._best = next(
            (one.trial.number for one in self.trials if one.value(metric) is not None), None
        )

    @property
    def columns(self) -> list[Column]:
        """The columns: first those that are shown, then those that can be chosen besides."""
        trials, facts = self.trials, self._facts
        numbers = [one.trial.number for one in trials]
        runs = [one.number or None for one in facts]
        repeats = [one.trial.repeat + 1 for one in trials]
        took = [one.seconds for one in facts]
        states = [one.state.value for one in trials]
        values = {name: [one.trial.params.get(name) for one in trials] for name in self._names()}
        varied = [name for name in values if any(one != values[name][0] for one in values[name])]
        asked = [
            replace(one, parameters=status.trial.params)
            for one, status in zip(facts, trials, strict=True)
        ]
        found = [
            Column("trial", [str(one) for one in numbers], numbers),
            Column("run", [str(one or "") for one in runs], runs),
            Column("state", states, states),
            *(
                parameter_column(asked, name, short_name(name, [*values]), shown=name in varied)
                for name in values
            ),
            Column(
                "repetition",
                [str(one) for one in repeats],
                repeats,
                shown=any(one > 1 for one in repeats),
            ),
            *(self._reached(name) for name in self.metrics),
            *(curve_column(facts, name) for name in self.metrics[:1]),
            Column("took", [took_text(one) for one in took], took, shown=any(took)),
        ]
        return sorted(found, key=lambda one: not one.shown)

    def _names(self) -> list[str]:
        return list(dict.fromkeys(name for one in self.trials for name in one.trial.params))

    def _reached(self, name: str) -> Column:
        """Return the column of a metric; the first one marks the best of the finished trials."""
        best = None
        if name == self.metrics[0] and self._best is not None:
            best = [one.trial.number for one in self.trials].index(self._best)
        return replace(metric_column(self._facts, name, shown=True), best=best)

    def __repr__(self) -> str:
        return "\n".join(aligned_columns(self.shown()[0]))

    def shown(self) -> tuple[list[Column], list[str]]:
        """Return the columns that are shown, and the lines below them, of which there are none."""
        return [one for one in self.columns if one.shown], []

    @property
    def tones(self) -> list[str]:
        """How each row's state is classified: wait, run, good, bad or off."""
        return [_TONES.get(one.state, "off") for one in self.trials]


def as_csv(sweep: Sweep) -> str:
    """Return the trials of a sweep as CSV, with the columns that its frame has."""
    rows, file = sweep.rows(), io.StringIO()
    writer = csv.DictWriter(file, list(dict.fromkeys(name for row in rows for name in row)))
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


_TONES = {
    TrialState.RUNNING: "run",
    TrialState.FINISHED: "good",
    TrialState.FAILED: "bad",
    TrialState.INTERRUPTED: "wait",
}

_ORDER = (
    TrialState.FINISHED,
    TrialState.PRUNED,
    TrialState.FAILED,
    TrialState.RUNNING,
    TrialState.INTERRUPTED,
    TrialState.WAITING,
)


def _counts(outcomes: Sequence[TrialStatus]) -> str:
    found = [(state, sum(one.state is state for one in outcomes)) for state in _ORDER]
    texts = [f"{number} {state.value}" for state, number in found if number]
    return f"{counted(len(outcomes), 'trial')}: {', '.join(texts)}"


_VARYING = (
    r"0x[0-9a-fA-F]+",
    # Of `dense_1` and `(3, 4)`, not of `float32`, `10.0.0.1` or an exit code.
    r"(?<!exited with code )(?<![A-Za-z\d.])-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?(?![A-Za-z\d])(?!\.\d)",
)
"""What differs between failures that are alike, wherever it stands in their texts."""

CHOICES_COUNT = 2
"""How many different values are all shown; of more numbers the range is."""


def _failures(outcomes: Sequence[TrialStatus]) -> list[str]:
    """Return one line for each kind of failure, however many trials had it.

    Two failures are alike if their texts are, or differ by numbers, addresses or the values that
    their trials tried. An exit code is no such number: programs tell kinds of failure apart by it.
    """
    same: dict[str, list[TrialStatus]] = {}
    for one in outcomes:
        if one.state is TrialState.FAILED and one.facts is not None:
            # The same error in any task of any trial.
            text = re.sub(r"^\w+:\d+ ", "a task ", why_failed(one.facts))
            same.setdefault(text, []).append(one)
    alike: dict[tuple[str, ...], list[tuple[list[str], list[int]]]] = {}
    for text, trials in same.items():
        parts = _varying(trials[0]).split(text)
        numbers = [one.trial.number for one in trials]
        alike.setdefault(tuple(parts[::2]), []).append((parts[1::2], numbers))
    return [_failure_line(fixed, found) for fixed, found in alike.items()]


def _varying(one: TrialStatus) -> re.Pattern[str]:
    """Return what may differ in another trial's text, with the texts that this one tried."""
    tried = [re.escape(repr(text)) for text in one.trial.params.values() if isinstance(text, str)]
    return re.compile(f"({'|'.join([*tried, *_VARYING])})")


def _failure_line(fixed: Sequence[str], found: Sequence[tuple[list[str], list[int]]]) -> str:
    trials = sorted(number for _, numbers in found for number in numbers)
    gaps = [_choices(each) for each in zip(*(values for values, _ in found), strict=True)]
    text = "".join(part for pair in zip(fixed, [*gaps, ""], strict=True) for part in pair)
    if len(trials) == 1:
        return f"trial {trials[0]} failed: {text}"
    return f"{len(trials)} trials failed alike ({', '.join(map(str, trials))}): {text}"


def _choices(values: Sequence[str]) -> str:
    """Return what stands at one place of several texts: a range if it is one of numbers."""
    different = [*dict.fromkeys(values)]
    try:
        different.sort(key=float)
    except ValueError:  # a text, or an address
        shown = different[: 1 if different[0].startswith("0x") else CHOICES_COUNT]
        others = ["others"] if len(different) > len(shown) else []
        return " or ".join([", ".join(shown), *others]) if others else " or ".join(shown)
    if len(different) > CHOICES_COUNT:
        return f"{different[0]} to {different[-1]}"
    return " or ".join(different)


HEADS = ("workers", "steps/s", "samples/s", "speed-up", "ideal", "efficiency", "runs")

NOTICEABLE_RATIO = 0.05
"""The least part of a step that is worth a word."""

_MODES = {
    STRONG: "strong scaling: a step has the same samples whatever the number of workers",
    WEAK: "weak scaling: each worker adds its own samples to a step",
}


def speed_words(trial: Trial, plan: ScalingPlan) -> str:
    """Name what a trial runs on."""
    again = f", repetition {trial.repeat + 1}" if trial.repeat else ""
    if trial.params.get("alone"):
        return f"one process with {params_words(plan.alone)}{again}"
    return counted(int(trial.params["workers"]), "worker") + again


def scaling_cells(found: Study) -> list[list[str]]:
    """Return the table: its head, and a row for each number of workers."""
    rows = [list(HEADS), *(_row(found, one) for one in found.sizes)]
    kept = [
        at for at, head in enumerate(HEADS) if head in HEADS[:2] or any(r[at] for r in rows[1:])
    ]
    return [[row[at] for at in kept] for row in rows]


def _row(found: Study, size: Size) -> list[str]:
    name = f"1 ({params_words(found.plan.alone)})" if size.alone else str(size.workers)
    rate, ideal, efficiency = size.rate, found.ideal(size), found.efficiency(size)
    runs = [str(one.facts.number) for one in size.trials if one.facts]
    speedup = _number(size.speedup)
    spread = size.error / ideal if ideal else 0.0
    return [
        name,
        _number(rate),
        f"{float(_number(rate * size.samples)):,.6g}" if rate and size.samples else "",
        f"{speedup}x" + (f" ± {size.error:.2g}" if size.error else "") if speedup else "",
        f"{ideal:g}x" if ideal and speedup else "",
        f"{efficiency:.0%}" + (f" ± {spread:.0%}" if size.error else "") if efficiency else "",
        ", ".join(runs),
    ]


def _number(value: float | None) -> str:
    return f"{value:.3g}" if value else ""


def scaling_words(found: Study) -> str:
    """Say whether more workers help, and what they share."""
    base = found.base
    others = [one for one in found.sizes if base and one.speedup and one is not base]
    if base is None or not others:
        why = "; see below" if found.unknown else ": fewer than two sizes were measured"
        return f"no speeds can be compared{why}"
    first, *more = sorted(others, key=lambda one: one.alone)
    texts = [_compared(first, found), *(_compared(one, found, brief=not one.alone) for one in more)]
    return f"{', '.join(texts)}{_shared(found)}{_exchange(found)}"


def _compared(size: Size, found: Study, *, brief: bool = False) -> str:
    """Say how fast a size is beside the smallest one."""
    assert found.base is not None and size.speedup is not None  # noqa: S101, PT018 - for types
    who = f"{size.workers}{'' if brief else ' workers'} train"
    if size.alone:
        who = f"one process with {params_words(found.plan.alone)} trains"
    than = f"as fast as {found.base.workers}"
    if abs(size.speedup - 1) <= size.error:
        return f"{who} {than}"
    return f"{who} {size.speedup:.2g}x" + ("" if brief else f" {than}")


def _shared(found: Study) -> str:
    """Say what the workers of one machine share."""
    largest = max(found.sizes, key=lambda one: one.workers if one.speedup else 0)
    if largest.hosts > 1:
        return f": the {largest.workers} ran on {counted(largest.hosts, 'machine')}"
    local = found.plan.options.get("engine", "local") == "local"
    cpus = f" {counted(found.plan.cpus, 'CPU')}" if local else " its CPUs"
    where = "this machine" if local else "one machine"
    return (
        f": on {where} the {largest.workers} share{cpus} and its memory, so this says little about "
        f"{counted(largest.workers, 'machine')}"
    )


def _exchange(found: Study) -> str:
    """Say how much of a step the exchange between the workers takes, if that is noticeable."""
    known = [one for one in found.sizes if one.waits is not None and one.speedup]
    largest = max(known, key=lambda one: one.workers, default=None)
    if largest is None or largest.waits is None or largest.waits < NOTICEABLE_RATIO:
        return ""
    return f"; in {largest.waits:.0%} of a step the {largest.workers} only wait for each other"


def scaling_notes(found: Study) -> list[str]:
    """Say what is behind the numbers, what was not measured and why, and what to do."""
    told = [_MODES[found.mode]] if found.mode and found.base else []
    known = [one for one in found.sizes if one.rate and one.samples and not one.alone]
    if found.asked and found.mode != found.asked and len(known) > 1:
        samples = ", ".join(f"{one.samples:g} with {one.workers}" for one in known)
        told.append(
            f"--{found.asked} was given, but a step's samples say otherwise ({samples}), so "
            "samples a second are compared"
        )
    if found.unknown:
        told.append(
            "it is not known how many samples a step has: add --show "
            f"{found.number} and --strong if it has the same number whatever the number of "
            "workers, or --weak if each worker adds its own"
        )
    return told + [
        text
        for size in found.sizes
        for one, speed in zip(size.trials, size.speeds, strict=True)
        if (text := _unmeasured(found.plan, one, speed))
    ]


def _unmeasured(plan: ScalingPlan, one: TrialStatus, speed: Speed | None) -> str:
    """Say why a trial has no speed; nothing if it has one."""
    name = speed_words(one.trial, plan)
    if one.state is TrialState.FAILED and one.facts:
        return f"{name} (run {one.facts.number}) failed: {why_failed(one.facts)}"
    if not one.state.over or not one.facts:
        return f"{name}: not measured yet"
    if speed is None:
        return (
            f"{name}: run {one.facts.number} reported no steps; `fit` reports them, and other "
            "programs do with mwmagic.worker.report(step=...)"
        )
    if not speed.rate:
        return (
            f"{name}: run {one.facts.number} ended with less than {MEASURABLE_SECONDS:g} s of "
            "training after the warm-up, which is too little for a number: let it train longer"
        )
    return ""


def scaling_lines(found: Study) -> list[str]:
    """Return the table and the sentences about it as lines of text."""
    return [*aligned(scaling_cells(found)), scaling_words(found), *scaling_notes(found)]
