"""The end of a cluster: asked for, waited for, enforced, and checked."""

from __future__ import annotations

import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import psutil

from mwmagic.errors import SupervisorError

from .connection import CLOSE_SECONDS, REPLY_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .connection import Connection

__all__ = ["Ending"]

LEFT_SECONDS = 5.0
"""How long a supervisor's processes may outlive it before they are killed."""

KILLED_SECONDS = 2.0
"""How long a process may exist after it was killed before it counts as one that cannot end."""

PAUSE_SECONDS = 0.005
"""Pause between two looks at processes that end."""


class Ending:
    """The end of a cluster, which begins at once; several can end at the same time.

    Ctrl-C, or a signal that the command line turns into one, has it end without the rest of the
    grace.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._family: set[psutil.Process] = set()
        self._listens = False
        if not connection.lost:
            self._look()
            with self._hurried(), suppress(SupervisorError):  # gone, or it does not listen
                connection.request("close", seconds=REPLY_SECONDS)
                self._listens = True

    def complete(self, grace: float) -> None:
        """Wait for the end, and enforce what does not come by itself."""
        if self._listens:
            with self._hurried(), suppress(SupervisorError):  # gone, which is what was asked for
                self._connection.wait(lambda _: False, grace + CLOSE_SECONDS)
        if not self._connection.lost:
            self._look()
            self._kill(self._supervisor())
        self._kill(self._after(LEFT_SECONDS))
        left = self._after(KILLED_SECONDS)
        if left:
            raise SupervisorError(
                f"the supervisor of the cluster is gone, but {_described(left)} could not be ended"
            )

    @contextmanager
    def _hurried(self) -> Iterator[None]:
        """Kill every process where Ctrl-C comes in a block: no one waits for them any longer."""
        try:
            yield
        except KeyboardInterrupt:
            self._look()
            self._kill(self._family)
            self._after(KILLED_SECONDS)
            raise

    def _look(self) -> None:
        """Note the supervisor and its descendants, each by its id and its start."""
        with suppress(psutil.NoSuchProcess):
            for one in self._supervisor():
                self._family |= {one, *one.children(recursive=True)}

    def _supervisor(self) -> list[psutil.Process]:
        with suppress(psutil.NoSuchProcess):
            return [psutil.Process(self._connection.pid)]
        return []

    def _kill(self, processes: Iterable[psutil.Process]) -> None:
        for one in processes:
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                one.kill()

    def _after(self, seconds: float) -> list[psutil.Process]:
        """Return the processes that still run after some seconds."""
        deadline = time.monotonic() + seconds
        while (left := list(filter(_runs, self._family))) and time.monotonic() < deadline:
            time.sleep(PAUSE_SECONDS)
        return left


def _runs(one: psutil.Process) -> bool:
    """Return whether a process runs; one that only waits for its parent does not."""
    with suppress(psutil.NoSuchProcess):
        return bool(one.is_running() and one.status() != psutil.STATUS_ZOMBIE)
    return False


def _described(left: Iterable[psutil.Process]) -> str:
    with suppress(psutil.NoSuchProcess):
        return ", ".join(f"process {one.pid} ({one.name()}, {one.status()})" for one in left)
    return "a process"
