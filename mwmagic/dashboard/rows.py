"""A snapshot of a run as a page shows it: short texts, one row for each task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mwmagic.diagnosis import Cause
from mwmagic.model.status import FINAL, remarks, task_words

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Load", "fraction", "header", "left", "metrics", "place", "row", "shown", "tone"]

ROWS, CARDS = 8, 24
"""Tasks that are shown as rows at the most, and as cards; more are tiles."""

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


def left(task: Mapping[str, Any]) -> str:
    """Say how long a task's training will still take, as it looks now: ``1:07 left``."""
    seconds = _left(task)
    if seconds is None:
        return ""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02} left" if hours else f"{minutes}:{rest:02} left"


def _left(task: Mapping[str, Any]) -> float | None:
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


def shown(path: str) -> str:
    """Return a path below the record's directory as a reader needs it."""
    return path[path.find("/.mwmagic/") + 1 :]


def _usage(task: Mapping[str, Any], share: float | None) -> str:
    """Say where a task's process is, and what it uses."""
    memory = (task["memory"] or 0) / 2**20
    told = [
        left(task),
        task["address"],
        task["pid"] and f"pid {task['pid']}",
        share is not None and f"{100 * share:.0f} % CPU",
        memory and (f"{memory:.0f} MB" if memory < 2**10 else f"{memory / 2**10:.1f} GB"),
    ]
    return " · ".join(filter(None, told))


def row(task: Mapping[str, Any], share: float | None = None) -> dict[str, Any]:
    """Return what a page shows of a task, as JSON values; no finer, so that it changes less.

    Parameters
    ----------
    task : mapping
        A snapshot of it.
    share : float, optional
        How busy it is.
    """
    part, kind = fraction(task), tone(task)
    return {
        "tone": kind,
        "state": task_words(task),
        "part": 1.0 if kind == "good" else part and round(part, 3),
        "place": place(task["progress"]),
        "metrics": "   ".join(f"{name} {value}" for name, value in metrics(task["progress"])),
        "usage": _usage(task, share),
        "log": task["log"] and shown(task["log"]),
    }


def _tone(run: Mapping[str, Any]) -> str:
    tones = {"finished": "good", "failed": "bad", "stopped": "off", "lost": "bad"}
    waits = {"forming": "wait", "backoff": "wait", "ending": "wait"}
    return {**tones, **waits}.get(run["state"], "run")


def header(run: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a page shows of a run as a whole, as JSON values."""
    cause = Cause.from_dict(run["cause"]) if run["cause"] else None
    attempt = f" · attempt {run['attempt']}" if run["attempt"] > 1 else ""
    over, doing, count = run["state"] in (*FINAL, "lost"), run.get("doing"), len(run["tasks"])
    return {
        "title": f"Run {run['number']} · {run['script']}{attempt}",
        "tone": _tone(run),
        "words": doing or run["words"],
        "actions": [] if doing else ["Restart"] if over else ["Stacks", "Restart", "Stop"],
        "over": over,
        "started": run["started"],
        "ended": run["ended"],
        "names": list(run["tasks"]),
        "size": "rows" if count <= ROWS else "cards" if count <= CARDS else "tiles",
        "cause": "\n".join(cause.lines()) if cause else "",
        "culprit": cause.task if cause else None,
        "notice": "\n".join([*filter(None, [run.get("notice")]), *remarks(run)]),
        "folder": shown(run["directory"]),
    }
