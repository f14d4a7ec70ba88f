"""What is said of runs that nothing waits for, where a notebook is executed without a reader."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mwmagic.model.status import RunState

from .failure import explain
from .run import exhausted, headline, words

if TYPE_CHECKING:
    from mwmagic.model.status import RunStatus

__all__ = ["LEFT", "parting"]

_ADVICE = "end the notebook with `%mw_wait`"

LEFT = f"The run is stopped when the kernel ends; {_ADVICE}, which waits for the run."
"""What is said of a run that is going, as long as no page shows it."""


def parting(run: RunStatus) -> str:
    """Say what the end of the kernel means for a run that nothing waited for, if anything."""
    if run.result in (RunState.FAILED, RunState.LOST):
        return (
            f"{_end(run)}; nothing waited for it, so the notebook did not fail with it; {_ADVICE}"
        )
    if not run.settled:
        number, where = run.number, words(run)
        return f"the kernel ended while run {number} was going ({where}), and stopped it; {_ADVICE}"
    return ""


def _end(run: RunStatus) -> str:
    if run.cause is None:
        return headline(run)
    why = f"run {run.number} failed: {explain(run.cause)[0]}"
    return "; ".join(filter(None, [why, exhausted(run)]))
