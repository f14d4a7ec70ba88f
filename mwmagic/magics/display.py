"""What a notebook shows of runs while they go on, and keeps when they are over."""

from __future__ import annotations

from threading import TIMEOUT_MAX
from typing import TYPE_CHECKING

from IPython.core.getipython import get_ipython

from mwmagic.dashboard.static import page as status_html
from mwmagic.dashboard.static import text as status_text

from .progress import show_progress

if TYPE_CHECKING:
    from mwmagic.client.cluster import Cluster
    from mwmagic.client.run import Run
    from mwmagic.dashboard.board import Board
    from mwmagic.dashboard.widget import Widget

__all__ = ["Displays", "status_html", "status_text"]


def _in_kernel() -> bool:
    """Whether a notebook may show widgets; else this is IPython in a terminal."""
    return getattr(get_ipython(), "kernel", None) is not None


class Displays:
    """The dashboards of this notebook, one for each cluster."""

    def __init__(self) -> None:
        self._boards: dict[Cluster, Board] = {}
        self._spare: Widget | None = None

    def prepare(self) -> None:
        """Have the page load what shows a run before there is one, and say what it can do."""
        if self._spare is None and _in_kernel():
            from mwmagic.dashboard.widget import Widget

            self._spare = Widget()

    def show(self, run: Run) -> None:
        """Show a run below the cell that is being executed."""
        if not _in_kernel():
            print(status_text(run.status()))  # noqa: T201 - the output of the cell
            return
        for cluster in [cluster for cluster in self._boards if cluster.closed]:
            self._boards.pop(cluster).close()
        board = self._boards.get(run.cluster)
        if board is not None:
            board.show(run)
            return
        from mwmagic.dashboard.board import Board
        from mwmagic.dashboard.widget import Widget

        self._boards[run.cluster] = Board(run, self._spare or Widget())
        self._spare = None

    def wait(self, run: Run, timeout: float | None) -> None:
        """Show how far a run is until it is over, or the time is."""
        if _in_kernel():
            show_progress(run, timeout)
            return
        from mwmagic.dashboard.terminal import live

        with live(run):
            run.ended_within(TIMEOUT_MAX if timeout is None else timeout)

    def finish(self, run: Run) -> None:
        """Wait until the last state of a run that is over is what will be saved."""
        board = self._boards.get(run.cluster)
        if board is not None and run.over:
            board.finish()

    def close(self) -> None:
        """Show nothing live any more."""
        for board in self._boards.values():
            board.close()
        self._boards.clear()
        if self._spare is not None:
            self._spare.close()
