"""A snapshot of a run as a page shows it: short texts, one row for each task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mwmagic.diagnosis import Cause
from mwmagic.status import FINAL, remarks, task_words

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Load", "fraction", "header", "left", "metrics", "place", "row", "tone"]

LOAD = 2.0
"""Seconds over which the CPU's load is taken at the least; its samples are a second apart."""


def tone(task: Mapping[str, Any]) -> str:
    """Say how a task is in one of: absent, wait, run, good, bad, off."""
    state = task["state"]
    if state == "ended":
        if task["error"] is None and task["code"] == 0:
            return "good"
        return "off" if task["ours"] else "bad"
    if state == "absent":
        return "absent"
    return "run" if state == "running" and not task["waits"] else "wait"


def place(progress: Mapping[str, Any] | None) -> str:
    """Say where a task is in its training: ``epoch 2/3 · step 45/70``."""
    told = progress or {}
    parts = [
        f"{name} {told[name]}" + (f"/{told[name + 's']}" if told.get(name + "s") else "")
        for name in ("epoch", "step")
        if told.get(name) is not None
    ]
    return " · ".join(parts)


def metrics(progress: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """Return the latest metrics, with four digits."""
    told = (progress or {}).get("metrics") or {}
    return [(name, f"{value:.4g}") for name, value in told.items()]


def fraction(task: Mapping[str, Any]) -> float | None:
    """Return how much of its training a task has done, from 0 to 1; None if it does not tell."""
    told = task["progress"] or {}
    epoch, epochs, step, steps = (told.get(name) for name in ("epoch", "epochs", "step", "steps"))
    part = min(step / steps, 1.0) if step is not None and steps else None
    if told.get("kind") == "train" and epoch and epochs:
        return float(min((epoch - 1 + (part or 0.0)) / epochs, 1.0))
    if part is None and epoch is not None and epochs:
        return float(min(epoch / epochs, 1.0))
    return part


def left(task: Mapping[str, Any]) -> float | None:
    """Return the seconds that a task's training will still take, as it looks now."""
    told = task["progress"] or {}
    pace, step, steps = (told.get(name) for name in ("seconds_per_step", "step", "steps"))
    if task["state"] != "running" or not pace or step is None or not steps:
        return None
    later = max((told.get("epochs") or 0) - (told.get("epoch") or 0), 0)
    return float(pace * (steps - step + later * steps))


class Load:
    """How busy a task is, from the CPU time that it has used so far."""

    def __init__(self) -> None:
        self._since: tuple[float, float] | None = None
        self.share: float | None = None

    def take(self, cpu: float | None, time: float) -> None:
        """Take the seconds of CPU time that it has used, and the time now."""
        if cpu is None:
            self._since = self.share = None
        elif self._since is None or cpu < self._since[0]:
            self._since = (cpu, time)
        elif time - self._since[1] >= LOAD:
            self.share = (cpu - self._since[0]) / (time - self._since[1])
            self._since = (cpu, time)


def row(task: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a page shows of a task, as JSON values; no finer, so that it changes less."""
    part, rest, memory = fraction(task), left(task), task["memory"]
    return {
        "tone": tone(task),
        "words": task_words(task),
        "part": None if part is None else round(part, 3),
        "place": place(task["progress"]),
        "left": None if rest is None else round(rest),
        "metrics": metrics(task["progress"]),
        "memory": memory and memory // 2**20 * 2**20,
        "at": task["address"],
        "pid": task["pid"],
        "log": task["log"],
    }


def _tone(run: Mapping[str, Any]) -> str:
    tones = {"finished": "good", "failed": "bad", "stopped": "off", "lost": "bad"}
    waits = {"forming": "wait", "backoff": "wait", "ending": "wait"}
    return {**tones, **waits}.get(run["state"], "run")


def header(run: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a page shows of a run as a whole, as JSON values."""
    cause = Cause.from_dict(run["cause"]) if run["cause"] else None
    return {
        "number": run["number"],
        "script": run["script"],
        "tone": _tone(run),
        "words": run["words"],
        "over": run["state"] in (*FINAL, "lost"),
        "started": run["started"],
        "ended": run["ended"],
        "attempt": run["attempt"],
        "names": list(run["tasks"]),
        "cause": cause.lines() if cause else [],
        "culprit": cause.task if cause else None,
        "doing": run.get("doing", ""),
        "notice": "\n".join([*filter(None, [run.get("notice")]), *remarks(run)]),
    }
