"""How far a task's training has come, from its reports or else from its output."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mwmagic.logs.progress import Progress, Update

from .furthest import Furthest
from .reports import Imports, report_in

if TYPE_CHECKING:
    from mwmagic.logs.guard import Guard

    from .reports import Report

__all__ = ["Training"]


class Training:
    """The training of one process.

    Attributes
    ----------
    latest : Update or None
        Where it is, and the latest value of each metric.
    first : int
        The number of its first epoch: 1, or 0 if its program counts from there.
    unreadable : str or None
        What was wrong with the latest packet that was not a report.
    furthest : Furthest
        The furthest that it came.
    imports : dict of str to float
        How long each module took that it imported itself, if they took long.
    """

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self.latest: Update | None = None
        self.first = 1
        self.unreadable: str | None = None
        self.furthest = Furthest()
        self.imports: dict[str, float] = {}
        self._progress = Progress()
        self._reported: set[str] = set()
        self._placed = False  # its reports say where it is

    def printed(self, text: str) -> list[Update]:
        """Take the next text of the log; return its metrics that are not reported as well."""
        updates = self._guard.call("progress", None, self._progress.write, text, self._guard)
        if updates is None:
            self._progress = Progress()  # the old one's state may be anything
        return [self._unreported(update) for update in updates or ()]

    def _unreported(self, update: Update) -> Update:
        metrics = {n: value for n, value in update.metrics.items() if n not in self._reported}
        if len(metrics) < len(update.metrics):
            update = replace(update, metrics=metrics)
        if self._placed and self.latest is not None:
            known = {} if update.kind == "bar" else metrics
            self.latest = replace(self.latest, metrics={**self.latest.metrics, **known})
        else:
            self.latest = _merged(self.latest, update)
            self._moved(self.latest)
        return update

    def said(self, data: str) -> Report | None:
        """Take a packet; return what it reports."""
        try:
            report = report_in(data)
        except ValueError as error:
            self.unreadable = str(error)
            return None
        if isinstance(report, Imports):
            self.imports = report.seconds
        elif isinstance(report, Update):
            self._reported |= report.metrics.keys()
            self._place(report)
            self.latest = _advanced(self.latest, report)
            self._moved(self.latest)
        return report

    def _moved(self, latest: Update) -> None:
        """Take in where it is now."""
        self.furthest.take(latest)
        if latest.epoch is not None:
            self.first = min(self.first, max(latest.epoch, 0))

    def _place(self, report: Update) -> None:
        """Let reports say where it is from now on: what was printed may be ahead of the first."""
        if not self._placed and (report.step is not None or report.epoch is not None):
            self._placed = True
            self.furthest = Furthest()


def _begins(latest: Update, update: Update) -> bool:
    """Return whether another training begins, to which the values of the last one do not belong.

    Keras reports the start of a `fit` before its first epoch.
    """
    if update.epoch is None:
        return update.kind == "train" and not update.metrics and latest.epoch is not None
    return update.kind != "validation" and update.epoch < (latest.epoch or update.epoch)


def _merged(latest: Update | None, update: Update) -> Update:
    """Return what a task reached: an evaluation or a heading does not hide the last metrics."""
    if latest is None:
        return update
    if update.kind == "bar" and latest.kind != "bar":
        return latest
    if _begins(latest, update):
        return update
    if latest.metrics.keys() <= update.metrics.keys():
        return update
    return replace(update, metrics={**latest.metrics, **update.metrics})


def _advanced(latest: Update | None, report: Update) -> Update:
    """Return what a task reached with a report, which may leave out what has not changed."""
    if latest is None:
        return report
    if report.kind == "evaluate":
        return latest if latest.kind in ("train", "report") else report
    if _begins(latest, report):
        return report
    metrics = {**latest.metrics, **report.metrics}
    if not _moves(latest, report):
        return replace(latest, metrics=metrics)
    pace = report.seconds_per_step
    if report.kind == latest.kind == "report":
        report = _filled(latest, report)
    if pace is None and report.kind == latest.kind:
        pace = latest.seconds_per_step
    return replace(report, metrics=metrics, seconds_per_step=pace)


def _moves(latest: Update, report: Update) -> bool:
    """Return whether a report says where training is, and is the one to say so."""
    if report.kind == "validation":
        return False
    inside = latest.kind == "train" and not latest.final  # an epoch of Keras's
    return report.kind == "train" or not (inside or (report.step is None and report.epoch is None))


def _filled(latest: Update, report: Update) -> Update:
    """Return a user's report with the place that it leaves out."""
    same = report.epoch in (None, latest.epoch)
    return replace(
        report,
        epoch=latest.epoch if report.epoch is None else report.epoch,
        epochs=latest.epochs if report.epochs is None else report.epochs,
        step=latest.step if report.step is None and same else report.step,
        steps=latest.steps if report.steps is None else report.steps,
    )
