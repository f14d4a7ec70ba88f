"""Ratios of figures that were measured in turn, and their spread."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median, quantiles


@dataclass(frozen=True)
class Ratio:
    """The median of the rounds' ratios, and between which two values half of them lie."""

    median: float
    low: float
    high: float


def spread(values):
    """Return the quartiles; of fewer than four values the least and the greatest."""
    if len(values) < 4:
        return min(values), max(values)
    low, _, high = quantiles(values, n=4, method="inclusive")
    return low, high


def ratio(ours, theirs):
    """Return the ratio of two series, round by round, or None if there is none."""
    found = [own / other for own, other in zip(ours, theirs, strict=False) if other]
    return Ratio(median(found), *spread(found)) if found else None


def alternated(rounds, **ways):
    """Call each way once a round, every second round in reverse order; return their figures."""
    found = {name: [] for name in ways}
    for number in range(rounds):
        for name in reversed(ways) if number % 2 else ways:
            found[name].append(ways[name]())
    return found


def percentile(values, share):
    """Return the value below which a share of the values lies."""
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]
