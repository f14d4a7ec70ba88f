"""What is said beside a notebook whose kernel ends, of runs that nothing waited for."""

from __future__ import annotations

import atexit
import os
import sys
from typing import TYPE_CHECKING, Any

from mwmagic.client.lookup import judged
from mwmagic.logs.terminal import plain
from mwmagic.model.variables import ANNOUNCED
from mwmagic.words.run import exit_notice

if TYPE_CHECKING:
    from collections.abc import Callable

    from mwmagic.client.run import Run

__all__ = ["Parting"]


class Parting:
    """Reports, when the kernel ends, the runs that were going or failed unseen.

    Programs that execute notebooks pass on what a kernel prints to its standard error. They
    read no output after the last cell.
    """

    def __init__(self, shell: Any, watched: Callable[[], bool]) -> None:  # noqa: ANN401 - IPython is not typed
        self._kernel = getattr(shell, "kernel", None)
        self._watched = watched
        self._home = os.getpid()
        self._runs: dict[str, Run] = {}

    def expect(self, run: Run) -> None:
        """Report a run unless it is waited for."""
        self._runs[str(run.directory)] = run
        # What is registered last is called first: the run's cluster is not told to end yet.
        self.forget()
        atexit.register(self._report)

    def forget(self) -> None:
        """Report nothing."""
        atexit.unregister(self._report)

    def _report(self) -> None:
        if self._watched() or os.getpid() != self._home:  # a fork of the kernel
            return
        for run in self._runs.values():
            if not judged(run) and not _stays(run):
                self._tell(exit_notice(run.status()))

    def _tell(self, text: str) -> None:
        if not text:
            return
        text = f"{ANNOUNCED}{plain(text)}"
        if self._kernel is not None:  # whose own standard error is captured for its cells
            self._kernel.log.warning(text)
        else:
            print(text, file=sys.stderr)  # noqa: T201 - the terminal's


def _stays(run: Run) -> bool:
    """Return whether a run is going and outlives the kernel."""
    return run.cluster.options.detach and not run.over
