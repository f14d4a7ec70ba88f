"""What ``%mw_wait`` shows: a line of text that is updated until the run is over."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from IPython.display import display

from mwmagic.model.values import encodable
from mwmagic.words.run import line, remarks, waiting_words

if TYPE_CHECKING:
    from collections.abc import Callable

    from mwmagic.client.run import Run
    from mwmagic.model.status import RunStatus

__all__ = ["show_progress"]

UPDATE_SECONDS = 0.5
"""Time between two updates, each of which is saved with the notebook."""


def _text(status: RunStatus, began: float, *, watched: bool) -> str:
    """Return the run's line, with remarks below it; of a run that a page shows, what stays true.

    A page that is reloaded gets no later text of a cell that was running: the notebook keeps this.
    """
    if watched and not status.settled:
        return waiting_words(status, began)
    return encodable("\n".join([line(status), *remarks(status, timed=False)]))


def show_progress(
    run: Run, timeout: float | None, ask: Callable[[], None], watched: Callable[[], bool]
) -> None:
    """Show a run's progress until it is over or kept, or the time is up."""
    began = time.time()
    end = None if timeout is None else time.monotonic() + timeout
    shown = _text(run.status(), began, watched=watched())
    handle = display({"text/plain": shown}, raw=True, display_id=True)
    over = False
    while not over and (end is None or time.monotonic() < end):
        run.stirred_within(
            UPDATE_SECONDS if end is None else min(UPDATE_SECONDS, max(0.0, end - time.monotonic()))
        )
        over = run.status().settled
        if run.status().asks:
            ask()
        text = _text(run.status(), began, watched=watched())
        if text != shown and handle is not None:
            handle.update({"text/plain": text}, raw=True)
            shown = text
