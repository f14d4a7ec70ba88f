"""What makes training slow, and how long memory will last, in sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mwmagic.model.slowness import SlowCause
from mwmagic.model.values import counted
from mwmagic.slowness.table import CAUSES

from .file import size_words

if TYPE_CHECKING:
    from mwmagic.model.slowness import MemoryForecast, Slowdown

__all__ = ["forecast_words", "page", "slow_words"]


def slow_words(verdict: Slowdown) -> str:
    """Say which task holds up the others, why, what that costs, and what to try."""
    known = CAUSES[verdict.cause]
    return f"{_who(verdict)}{_at(verdict)}. {_gain(verdict)}Try: {known.remedy}"


def _who(verdict: Slowdown) -> str:
    known, share = CAUSES[verdict.cause], f"{verdict.share:.0%} of a step"
    if verdict.when == "in-turn":
        return f"the tasks hold each other up in turn: each time another one {known.one} ({share})"
    if verdict.task is None:
        return f"all tasks {known.all} for {share}{_link(verdict)}"
    if verdict.cause is SlowCause.LINK:
        return f"{verdict.task} {known.one}: all wait for {share}{_link(verdict)}"
    if verdict.times is not None:
        more = f"{verdict.times:.1f} times the CPU time of the others"
        return f"{verdict.task} {known.one}: it uses {more}"
    which = "every step" if verdict.when == "always" else "some of the steps"
    return f"{verdict.task} holds up {which}: it {known.one} ({share} is lost)"


def _link(verdict: Slowdown) -> str:
    """Say how much is sent to whom, and how fast."""
    if not (verdict.rate and verdict.peer):
        return ""
    size, rate = size_words(verdict.sent), size_words(verdict.rate)
    return f"; each step sends {size} to {verdict.peer}, at {rate} a second"


def _at(verdict: Slowdown) -> str:
    return f", at {verdict.at}" if verdict.at else ""


def _gain(verdict: Slowdown) -> str:
    """Say how long a step would take without it."""
    unknown = verdict.cause in (SlowCause.COLLECTIVE, SlowCause.LINK)  # how fast it could be
    if unknown or not 0 < verdict.without < verdict.step:
        return ""
    times = verdict.step / verdict.without
    now, then = _seconds(verdict.step), _seconds(verdict.without)
    return f"Without that a step would take {then} instead of {now} ({times:.1f}x). "


def _seconds(value: float) -> str:
    return f"{value:.1f} s" if value >= 1 else f"{value * 1e3:.3g} ms"


def forecast_words(forecast: MemoryForecast) -> str:
    """Say that the memory of a task grows, and for how many epochs there is some left."""
    left = f"about {counted(forecast.epochs, 'epoch')}" if forecast.epochs else "no whole epoch"
    verb = "is" if forecast.epochs <= 1 else "are"
    return f"{forecast.task} grows by {size_words(forecast.per_epoch)} an epoch; {left} {verb} left"


def page() -> str:
    """Return the table of causes, in Markdown."""
    parts = [
        f"### {one.title}\n\n*{one.sign[0].upper()}{one.sign[1:]}.* Try: {one.remedy}.\n"
        for one in CAUSES.values()
    ]
    return "\n".join(parts)
