"""A run's state in words, from a snapshot of it.

A snapshot is what a supervisor sends and what ``run.json`` holds: JSON values
only, so that the kernel, the page and the command line read the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mwmagic.diagnosis import Cause, describe

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["FINAL", "remarks", "task_words", "words"]

FINAL = ("finished", "failed", "stopped")
"""The states in which nothing of a run is alive."""


def _named(tasks: Mapping[str, Mapping[str, Any]], state: str) -> list[str]:
    return [name for name, task in tasks.items() if task["state"] == state]


def _running(tasks: Mapping[str, Mapping[str, Any]], stall: Mapping[str, Any] | None) -> str:
    if stall:
        why = [stall["why"]["what"]] if stall.get("why") else stall["lines"]
        return f"stalled: {why[0]}" if why else "stalled"
    starting = _named(tasks, "starting")
    if starting:
        return f"starting {', '.join(starting)}"
    phases = [task["phase"] for task in tasks.values() if task["state"] == "running"]
    waited = sorted({name for task in tasks.values() for name in task["waits"]})
    if "training" in phases:
        return "training"
    if waited and "connected" not in phases:
        return f"waiting for {', '.join(waited)} to connect"
    return "connected" if phases and set(phases) == {"connected"} else "running"


def words(run: Mapping[str, Any]) -> str:
    """Say in a few words where a run is.

    Parameters
    ----------
    run : mapping
        A snapshot of it.
    """
    trouble = run.get("trouble")
    return _words(run) + (f" (its record is incomplete: {trouble})" if trouble else "")


def _words(run: Mapping[str, Any]) -> str:
    state, tasks = run["state"], run["tasks"]
    if state == "forming":
        return f"waiting for {', '.join(_named(tasks, 'absent'))}, not launched"
    if state == "running":
        return _running(tasks, run.get("stall"))
    if state == "ending":
        return _ending(tasks)
    if state == "backoff":
        return f"restarting {run['restarts']} of {run['limit']}{_setback(run)}"
    if state == "failed" and run["cause"]:
        return f"failed: {Cause.from_dict(run['cause']).headline}"
    return str(state)


def _ending(tasks: Mapping[str, Mapping[str, Any]]) -> str:
    """Name who evaluates, which may take its time when training is done."""
    left = [name for name in _named(tasks, "running") if name.startswith("evaluator:")]
    return f"ending: {', '.join(left)} still runs" if left else "ending"


def _setback(run: Mapping[str, Any]) -> str:
    setbacks = run.get("setbacks")
    return f": {Cause.from_dict(setbacks[-1]['cause']).headline}" if setbacks else ""


def remarks(run: Mapping[str, Any]) -> list[str]:
    """Say what a run's user should know besides, a line each.

    Why it makes no progress, and what goes otherwise than meant.

    Parameters
    ----------
    run : mapping
        A snapshot of it.
    """
    stall = run.get("stall") or {}
    seen = [stall.get("why"), *run.get("notices", ())]
    return [
        f"{', '.join(one['tasks'])}: {one['meaning']} Try: {one['remedy']}." for one in seen if one
    ]


def task_words(task: Mapping[str, Any]) -> str:
    """Say in a few words where a task is."""
    state = task["state"]
    if state == "ended":
        return _ended(task)
    if state == "running" and task["waits"]:
        return f"waiting for {', '.join(task['waits'])}"
    if state == "running":
        return "running" if task["phase"] in (None, "starting") else str(task["phase"])
    return "not launched" if state == "absent" else str(state)


def _ended(task: Mapping[str, Any]) -> str:
    if task["error"]:
        return str(task["error"])
    if task["code"] == 0:
        return "finished"
    if task["ours"]:
        return "ended"  # by mwmagic, with the run: by which signal is nobody's trouble
    return describe(task["code"], task["signal"], oom=task["oom"])
