"""What a notebook shows of runs while they are going, and keeps when they are over."""

from __future__ import annotations

import time
from functools import partial
from threading import TIMEOUT_MAX
from typing import TYPE_CHECKING

from IPython.core.getipython import get_ipython
from IPython.display import display

from mwmagic.record import Record

from .progress import LOOK_AT_PAGES_SECONDS, answer_pages, show_progress

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mwmagic.client.cluster import Cluster
    from mwmagic.client.run import Run
    from mwmagic.dashboard.board import Board
    from mwmagic.dashboard.widget import Widget
    from mwmagic.model.status import RunStatus

__all__ = ["Displays"]


def _in_kernel() -> bool:
    """Return whether this is a kernel, which can show widgets, rather than a terminal."""
    return getattr(get_ipython(), "kernel", None) is not None


def _print(status: RunStatus, notes: Sequence[str] = ()) -> None:
    from mwmagic.dashboard.static import text

    print(text(status), *notes, sep="\n")  # noqa: T201 - the output of the cell


class Displays:
    """The dashboards of this notebook, one for each cluster."""

    def __init__(self) -> None:
        self._boards: dict[Cluster, Board] = {}
        self._spare: Widget | None = None

    def _widgets(self) -> list[Widget]:
        spare = [] if self._spare is None else [self._spare]
        return [*spare, *(board.widget for board in self._boards.values())]

    def watched(self) -> bool:
        """Return whether a page has loaded a dashboard."""
        return any(widget.watched for widget in self._widgets())

    def stirred_within(self, run: Run, seconds: float) -> bool:
        """Wait as `Run.stirred_within` does, and answer the notebook's pages meanwhile."""
        end = time.monotonic() + seconds
        while not run.stirred_within(max(0.0, min(LOOK_AT_PAGES_SECONDS, end - time.monotonic()))):
            if time.monotonic() >= end:
                return False
            answer_pages({widget.model_id for widget in self._widgets()})
        return True

    def prepare(self) -> None:
        """Have the page load the widget, and report what it can do, before there is a run."""
        if self._spare is None and _in_kernel():
            from mwmagic.dashboard.widget import Widget

            self._spare = Widget()

    def show_any(self, run: Run | Record) -> None:
        """Show a run below the cell that is being executed: its dashboard, or its state now."""
        if isinstance(run, Record):
            self.keep(run, run.status)
        elif run.over:
            self.keep(run.record, run.status())
        else:
            self.show(run)

    def keep(self, record: Record, status: RunStatus) -> None:
        """Show the state of a run at this moment, and its notices; they are not updated."""
        from mwmagic.words.changed import notices

        notes = notices(record)
        if not _in_kernel():
            _print(status, notes)
            return
        from mwmagic.dashboard.figures import last_figures
        from mwmagic.dashboard.static import page, text
        from mwmagic.experiments.series import Series

        series = Series(record.paths.metrics, status.tasks)
        while series.read():
            pass
        figures = last_figures(record.paths)
        html = page(status, series.points, figures=figures, live=not status.over, notes=notes)
        plain = "\n".join([text(status), *notes])
        display({"text/plain": plain, "text/html": html}, raw=True)

    def show(self, run: Run, notice: str = "") -> None:
        """Show a run below the cell that is being executed."""
        if not _in_kernel():
            _print(run.status())
            return
        for cluster in [cluster for cluster in self._boards if cluster.closed]:
            self._boards.pop(cluster).close()
        board = self._boards.get(run.cluster)
        if board is not None:
            board.show(run, notice)
            return
        from mwmagic.dashboard.board import Board
        from mwmagic.dashboard.widget import Widget

        self._boards[run.cluster] = Board(run, self._spare or Widget(), notice)
        self._spare = None

    def wait(self, run: Run, timeout: float | None, ask: Callable[[], None]) -> None:
        """Show a run's progress until it is over or kept, or the time is up.

        `ask` is called while tasks ask.
        """
        if _in_kernel():
            show_progress(run, timeout, ask, self.watched, partial(self.stirred_within, run))
            return
        from mwmagic.dashboard.terminal import live

        end = time.monotonic() + (TIMEOUT_MAX if timeout is None else timeout)
        while not run.status().settled and time.monotonic() < end:
            with live(run):
                run.stirred_within(max(0.0, end - time.monotonic()))
            if run.status().asks:
                ask()

    def finish(self, run: Run) -> None:
        """Wait until the output to be saved shows the final state of a run that is over."""
        board = self._boards.get(run.cluster)
        if board is not None and run.over:
            board.finish()

    def settle(self) -> None:
        """Finish the output of what is over; programs that execute notebooks read none later."""
        if not self.watched():
            for board in self._boards.values():
                self.finish(board.run)

    def close(self) -> None:
        """Stop every live display."""
        for board in self._boards.values():
            board.close()
        self._boards.clear()
        if self._spare is not None:
            self._spare.close()
