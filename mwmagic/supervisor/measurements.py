"""What the tasks of a run measure, on its way to the record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mwmagic.logs.progress import Update
from mwmagic.record.metrics import HISTORY, LOGGED, REPORTED

from .reports import History

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mwmagic.record import RunDirectory
    from mwmagic.record.summary import Extremes

    from .process import TaskProcess
    from .reports import Report

__all__ = ["Measurements"]

_STEP = (REPORTED, "train", False)
"""The source, kind and finality of what Keras reports of a step."""


class Measurements:
    """Records metrics, printed ones and reported ones."""

    def __init__(self, directory: RunDirectory, extremes: Extremes) -> None:
        self._directory = directory
        self._extremes = extremes
        self._noted: set[tuple[str, int]] = set()

    def printed(self, process: TaskProcess, updates: Iterable[Update]) -> None:
        """Record what a process printed."""
        for update in updates:
            if update.metrics:
                self._record(process, LOGGED, vars(update))

    def reported(self, process: TaskProcess, report: Report | None) -> None:
        """Record what a process reported beside its log; note once what cannot be read."""
        if report is None:
            self._note_unreadable(process)
        elif isinstance(report, History):
            self._record(process, REPORTED, {"kind": HISTORY, **vars(report)})
        elif isinstance(report, Update) and report.metrics:
            self._record(process, REPORTED, vars(report))

    def _note_unreadable(self, process: TaskProcess) -> None:
        key = (str(process.task), process.attempt)
        if process.unreadable is None or key in self._noted:
            return
        self._noted.add(key)
        task, attempt = key
        self._directory.event("unreadable", task=task, attempt=attempt, error=process.unreadable)

    def _record(self, process: TaskProcess, source: str, entry: dict[str, Any]) -> None:
        entry = {"source": source, "attempt": process.attempt, **entry}
        self._directory.metric(task=str(process.task), **entry)
        # Of what Keras reports the best is that of an epoch, not of one step.
        if entry["kind"] != HISTORY and (source, entry["kind"], entry["final"]) != _STEP:
            self._extremes.take(str(process.task), entry)
