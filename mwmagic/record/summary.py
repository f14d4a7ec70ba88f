"""The summary of a run: the time in each state, and each task's last and best metrics."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Durations", "Extremes", "rises"]

_RISING = re.compile(
    r"acc(?:uracy)?|auc|precision|recall|f1|f1_score|iou|dice|bleu|rouge|score|reward|psnr|ssim|r2"
)


def rises(metric: str) -> bool:
    """Return whether higher values of a metric are better, judging by its name."""
    words = re.split(r"[^a-z0-9]+|_", metric.lower())
    return any(_RISING.fullmatch(word) for word in words) and "loss" not in words


class Durations:
    """The seconds that a run spends in each state."""

    def __init__(self, state: str, time: float) -> None:
        self._state = state
        self._since = self._began = time
        self._spent: dict[str, float] = defaultdict(float)

    def enter(self, state: str, time: float) -> None:
        """Note that another state begins."""
        self._spent[self._state] += time - self._since
        self._state, self._since = state, time

    def as_json(self, time: float | None) -> dict[str, Any]:
        """Return the seconds in each state and in total, until `time` or the last state's start."""
        now = self._since if time is None else time
        spent = {**self._spent, self._state: self._spent[self._state] + now - self._since}
        states = {state: round(seconds, 3) for state, seconds in spent.items()}
        return {"total": round(now - self._began, 3), "states": states}


class Extremes:
    """The last and the best value of each task's metrics, and when each was reached."""

    def __init__(self) -> None:
        self._tasks: dict[str, dict[str, dict[str, Any]]] = {}

    def take(self, task: str, entry: Mapping[str, Any]) -> None:
        """Take an entry of ``metrics.jsonl``."""
        when = {name: entry.get(name) for name in ("attempt", "epoch", "step")}
        metrics = self._tasks.setdefault(task, {})
        for name, value in entry["metrics"].items():
            reached = {"value": value, **when}
            best = metrics.get(name, {}).get("best")
            if value is not None and math.isfinite(value) and _better(name, value, best):
                best = reached
            metrics[name] = {"last": reached, "best": best}

    def as_json(self) -> dict[str, Any]:
        """Return ``last`` and ``best`` for each task and metric."""
        return {task: dict(metrics) for task, metrics in self._tasks.items()}


def _better(name: str, value: float, best: Mapping[str, Any] | None) -> bool:
    if best is None:
        return True
    return bool(value > best["value"] if rises(name) else value < best["value"])
