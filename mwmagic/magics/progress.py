"""What ``%mw_wait`` shows: one line of text, replaced as the run goes on."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from IPython.display import display

from mwmagic.model.status import remarks

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mwmagic.client.run import Run

__all__ = ["show_progress"]

FRAME = 0.5
"""Seconds between two updates: each one is saved with the notebook."""


def _line(status: Mapping[str, Any]) -> str:
    """Return the run's state, the progress of the first task that has any, and remarks."""
    reached = [task["progress"] for task in status["tasks"].values() if task["progress"]]
    line = "  ".join([f"run {status['number']}: {status['words']}", *map(_reached, reached[:1])])
    return "\n".join([line, *remarks(status)])


def _reached(progress: Mapping[str, Any]) -> str:
    names = [name for name in ("epoch", "step") if progress.get(name) is not None]
    place = [f"{name} {progress[name]}/{progress[name + 's'] or '?'}" for name in names]
    return " ".join(
        [*place, *(f"{name} {value:.4g}" for name, value in progress["metrics"].items())]
    )


def show_progress(run: Run, timeout: float | None) -> None:
    """Show a run's progress until it is over, or the time is.

    Parameters
    ----------
    run : Run
        The run.
    timeout : float or None
        Seconds at the most.
    """
    end = None if timeout is None else time.monotonic() + timeout
    shown = _line(run.status())
    handle = display({"text/plain": shown}, raw=True, display_id=True)
    over = False
    while not over and (end is None or time.monotonic() < end):
        over = run.ended_within(
            FRAME if end is None else min(FRAME, max(0.0, end - time.monotonic()))
        )
        line = _line(run.status())
        if line != shown and handle is not None:
            handle.update({"text/plain": line}, raw=True)
            shown = line
