"""A run's metrics in a few points each, enough for a line as high as a word.

They stand in the index of runs as short texts, which are read only where they are shown.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from mwmagic.record.metrics import read_few

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["POINTS", "points", "sparks"]

POINTS = 30
"""The most points of a metric."""

METRICS = 20
"""The most metrics of a run that have a line."""

_BARS = "▁▂▃▄▅▆▇█"


def sparks(path: Path) -> dict[str, str]:
    """Return the points of each metric in a ``metrics.jsonl``, of the first task that has it."""
    found: dict[str, list[float]] = {}
    tasks: dict[str, str] = {}
    for entry in read_few(path):
        for name, value in entry["metrics"].items():
            if name not in found and len(found) >= METRICS:
                continue
            if tasks.setdefault(name, entry["task"]) == entry["task"] and math.isfinite(value):
                found.setdefault(name, []).append(value)
    return {name: " ".join(f"{one:.4g}" for one in _thin(all_)) for name, all_ in found.items()}


def points(text: str) -> list[float]:
    """Return the points of a metric, as `sparks` wrote them."""
    return [float(one) for one in text.split()]


def bars(values: list[float]) -> str:
    """Return points as a line of bars, the lowest value as the lowest bar."""
    if not values:
        return ""
    low, high = min(values), max(values)
    scale = (len(_BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(_BARS[round((one - low) * scale)] for one in values)


def _thin(values: list[float]) -> list[float]:
    """Return some of the values, evenly spread, the first and the last among them."""
    if len(values) <= POINTS:
        return values
    step = (len(values) - 1) / (POINTS - 1)
    return [values[round(number * step)] for number in range(POINTS)]
