"""What is said of a scaling study: its table, and whether more workers help."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mwmagic.experiments.scaling import MEASURABLE_SECONDS, STRONG, WEAK
from mwmagic.experiments.trials import TrialState
from mwmagic.model.values import counted

from .sweep import params_words, why_failed
from .table import aligned

if TYPE_CHECKING:
    from mwmagic.experiments.scaling import ScalingPlan, Size, Speed, Study
    from mwmagic.experiments.trials import Trial, TrialStatus

__all__ = ["begun_words", "cells", "conclusion", "lines", "notes", "speed_words"]

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


def begun_words(trial: Trial, plan: ScalingPlan, run: int) -> str:
    """Say that a trial begins."""
    return f"{speed_words(trial, plan)}: run {run}"


def cells(found: Study) -> list[list[str]]:
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


def conclusion(found: Study) -> str:
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


def notes(found: Study) -> list[str]:
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


def lines(found: Study) -> list[str]:
    """Return the table and what is said of it as lines of text."""
    return [*aligned(cells(found)), conclusion(found), *notes(found)]
