"""A sweep in a notebook: its trials in a table, the best first, with their curves in one chart.

A page shows it live, with the board of the trial that is chosen; a notebook keeps it. A scaling
study is a sentence, the speed-up beside the ideal line, and a table.
"""

from __future__ import annotations

import html
import threading
import time
from typing import TYPE_CHECKING, Any

from traitlets import Dict

from mwmagic.experiments.compare import axes_of, curves_of, thinned_curves
from mwmagic.experiments.series import Key, Point, read_series
from mwmagic.experiments.trials import TrialState, seconds_left
from mwmagic.model.values import counted, encodable, sendable
from mwmagic.words.comparison import notices
from mwmagic.words.sweep import (
    TrialTable,
    findings,
    open_words,
    scaling_cells,
    scaling_lines,
    scaling_notes,
    scaling_words,
    sweep_words,
)

from .board import (
    IDLE_SAVE_SECONDS,
    SAVE_SECONDS,
    UNWATCHED_SAVE_SECONDS,
    VIEW,
    Board,
    Output,
    Widget,
)
from .runs import (
    SHOWN_ROWS,
    column_facts,
    curves_image,
    interactive,
    plain_table,
    point_facts,
    text_cell,
    wide,
)
from .static import (
    DISTINCT_CURVES,
    UNTYPESET,
    Picture,
    framed,
    front_end,
    image,
    recorded,
    saved_words,
    styles,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mwmagic.client.run import Run
    from mwmagic.experiments.compare import Curve
    from mwmagic.experiments.runs import Facts
    from mwmagic.experiments.scaling import Study
    from mwmagic.experiments.series import Series
    from mwmagic.experiments.sweep import Sweep
    from mwmagic.experiments.trials import TrialStatus

__all__ = ["NotebookScaling", "SweepBoard", "SweepWidget", "kept_sweep"]

CURVES_COUNT = 20
"""How many of the best trials have a curve; besides them those that are going, and the chosen."""

LIVE_POINTS = 2000
"""The most points of all curves together, which are sent again and again."""

HEIGHT_PIXELS = 480
"""How high the table is where no scripts run, before it scrolls."""


def kept_sweep(sweep: Sweep) -> dict[str, str]:
    """Return a sweep as a notebook keeps it, as plain text and as HTML."""
    seen = _Trials(sweep)
    return {"text/plain": seen.text, "text/html": seen.kept()}


class _Trials:
    """What is known of the trials at one moment; what has not changed since is not read again."""

    def __init__(self, sweep: Sweep, *, begins: bool = False) -> None:
        self._sweep = sweep
        self._begins = begins
        self._since = time.time()
        self._settled: dict[str, Facts] = {}
        self._series: dict[str, Series] = {}
        self._ended: dict[str, list[Curve]] = {}
        self._looks: dict[int, int] = {}
        self.chosen: int | None = None
        self.read()

    def read(self) -> None:
        """Read what has changed."""
        self.outcomes = self._sweep.outcomes(self._settled)
        metric = self._sweep.metric(self.outcomes)
        self._table = TrialTable(self.outcomes, metric, SHOWN_ROWS)
        left = seconds_left(self.outcomes, self._since, time.time())
        self.title = sweep_words(self._sweep.number, self.outcomes, left)
        self._notes = findings(self.outcomes, metric)
        if not self._begins:  # else this process is about to run it
            self._notes += open_words(self._sweep, self.outcomes, "%mw_sweep")
        self._begins = False
        if self._table.left:
            more = f"{counted(self._table.left, 'more trial')}: `mwmagic sweep --show` prints all"
            self._notes.append(more)
        self._curves = self._read_curves()

    def forget(self) -> None:
        """Read everything again next time, also what has not changed."""
        self._settled.clear()
        self._ended.clear()

    def status(self, trial: int) -> TrialStatus | None:
        """Return a trial by its number."""
        return next((one for one in self.outcomes if one.trial.number == trial), None)

    def _drawn(self) -> list[TrialStatus]:
        """Return the trials that have a curve, each with a look that it keeps."""
        trials = [one for one in self._table.trials if one.record is not None]
        wanted = [one for one in trials if one.trial.number == self.chosen]
        wanted += trials[:CURVES_COUNT]
        wanted += [one for one in trials if one.state is TrialState.RUNNING]
        drawn = [*{one.trial.number: one for one in wanted}.values()][:DISTINCT_CURVES]
        numbers = [one.trial.number for one in drawn]
        self._looks = {one: look for one, look in self._looks.items() if one in numbers}
        free = [one for one in range(DISTINCT_CURVES) if one not in self._looks.values()]
        new = [one for one in numbers if one not in self._looks]
        self._looks |= dict(zip(new, free, strict=False))
        return drawn

    def _read_curves(self) -> dict[int, list[Curve]]:
        found = {one.trial.number: self._curves_of(one) for one in self._drawn()}
        every = [curve for several in found.values() for curve in several]
        thin = iter(thinned_curves(every, LIVE_POINTS))
        return {number: [next(thin) for _ in several] for number, several in found.items()}

    def _curves_of(self, one: TrialStatus) -> list[Curve]:
        if one.record is None:
            return []
        name = one.record.path.name
        if name not in self._ended:
            series = self._series.pop(name, None) or read_series(one.record)
            while series.read():
                pass
            curves = thinned_curves(curves_of(series, one.known), LIVE_POINTS)
            if one.state is not TrialState.RUNNING:
                self._ended[name] = curves
            else:
                self._series[name] = series
                return [curve for curve in curves if curve.metric in self._table.metrics]
        return [curve for curve in self._ended[name] if curve.metric in self._table.metrics]

    # What is shown.

    @property
    def text(self) -> str:
        """The trials as plain text."""
        return encodable("\n".join([self.title, repr(self._table), *self._notes]))

    def table(self) -> dict[str, Any]:
        """Return the table as a page gets it."""
        trials = [one.trial.number for one in self._table.trials]
        found: dict[str, Any] = sendable(
            {
                "title": self.title,
                "notes": self._notes,
                "columns": [column_facts(one) for one in self._table.columns],
                "tones": self._table.tones,
                "trials": trials,
                "runs": [one.known.number for one in self._table.trials],
                "looks": [self._looks.get(one) for one in trials],
            }
        )
        return found

    def curves(self) -> dict[str, Any]:
        """Return the curves as a page gets them."""
        every = [one for several in self._curves.values() for one in several]
        found: dict[str, Any] = sendable(
            {
                "axes": axes_of(every),
                "metrics": self._table.metrics[:1],
                "curves": [
                    [self._looks[number], one.metric, [point_facts(point) for point in one.points]]
                    for number, several in self._curves.items()
                    for one in several
                ],
            }
        )
        return found

    def kept(self) -> str:
        """Return HTML that a notebook keeps, with a view that acts where a page runs scripts."""
        return interactive(self.plain(), "sweep", {**self.table(), **self.curves()})

    def plain(self, note: str = "") -> str:
        """Return HTML without scripts, with one image of the curves."""
        metric = self._table.metrics[:1]
        shown = {
            number: curve
            for number, several in self._curves.items()
            for curve in several
            if curve.metric in metric
        }
        labels = {curve.run: f"trial {number}" for number, curve in shown.items()}
        curves = [*shown.values()]
        picture = curves_image(curves, labels, axes_of(curves)[0], self.title) if curves else ""
        table = plain_table(self._table.columns, self._table.tones, [])
        notes = "".join(f"<p>{html.escape(one)}</p>" for one in self._notes)
        head = f"<b>{html.escape(self.title)}</b>{html.escape(note)}"
        area = f'<div style="max-height:{HEIGHT_PIXELS}px;overflow:auto">{table}</div>'
        return f"{head}{picture}{area}{notes}"


class SweepWidget(Widget):
    """A sweep that is going, as the kernel and its page share it.

    `detail` is the trial that is chosen, and its board.
    """

    _esm = front_end("chart.js", "runs.js", "sweep.js", "hosting.js")
    _css = styles("chart.css", "runs.css")
    table = Dict().tag(sync=True)
    curves = Dict().tag(sync=True)
    detail = Dict().tag(sync=True)


TRIALS_SECONDS = 2.0
"""The least time between two looks at the trials."""

BOARD_COST_RATIO = 0.05
"""The most of the time that the looks take: those at very many trials are rarer."""


class SweepBoard:
    """Shows a sweep below the cell that runs it, and then what became of it.

    `change` is called on the main thread, and what a page asks for arrives on another one while
    the cell is executed.
    """

    def __init__(self, sweep: Sweep, *, hosted: bool, answer_pages: Callable[[], None]) -> None:
        self._answer_pages = answer_pages
        self._lock = threading.RLock()
        self._seen = _Trials(sweep, begins=True)
        self._runs: dict[int, Run] = {}
        self._inner: Board | None = None
        self._answered: tuple[int | None, int] = (None, 0)
        self._due = 0.0
        self.widget = SweepWidget()
        self.widget.hosted = hosted
        self._send()
        self.widget.on_msg(self._hear)
        self._saved = (time.monotonic(), self._saying())
        self._output = Output(self.widget, self._bundle(live=True))

    @property
    def widgets(self) -> list[Widget]:
        """Those that pages show of it."""
        return [self.widget, *([self._inner.widget] if self._inner else [])]

    def change(self, runs: Sequence[Run]) -> None:
        """Show how far the trials are whose runs are going, if it is time to look at them."""
        self._runs = {run.number: run for run in runs}
        self._answer_pages()
        began = time.monotonic()
        if began < self._due:
            return
        with self._lock:
            self._look()
            self._save()
        cost = time.monotonic() - began
        self._due = began + max(TRIALS_SECONDS, cost / BOARD_COST_RATIO)

    def finish(self) -> None:
        """Show what became of the trials, as the notebook keeps it."""
        with self._lock:
            self._seen.forget()
            self._look()
            self._output.update(self._bundle(live=False))

    def close(self) -> None:
        """Stop answering pages; the output stays as it is."""
        with self._lock:
            if self._inner is not None:
                self._inner.close()
            self.widget.close()

    def _look(self) -> None:
        self._seen.read()
        self._send()
        trial, run = self._answered
        status = None if trial is None else self._seen.status(trial)
        if status is not None and status.known.number != run:
            self._choose(status)

    def _send(self) -> None:
        self.widget.table, self.widget.curves = self._seen.table(), self._seen.curves()

    # What is saved.

    def _bundle(self, *, live: bool) -> dict[str, Any]:
        seen, label = self._seen, self.widget.label
        page = seen.plain(f" ({saved_words()})") if live else seen.kept()
        bundle: dict[str, Any] = {"text/plain": seen.text, "text/html": framed(page, label)}
        if live and not self.widget.hosted:
            bundle[VIEW] = self.widget.view[0]
        return bundle

    def _saying(self) -> tuple[object, ...]:
        """Return the values whose change is saved soon."""
        states = [one.state for one in self._seen.outcomes]
        return states, self.widget.hosted, self.widget.loaded, self.widget.watched

    def _save(self) -> None:
        """Update what the notebook keeps, if it is time for that: Jupyter renders it again."""
        now, (saved, saying) = time.monotonic(), self._saved
        idle = IDLE_SAVE_SECONDS if self.widget.watched else UNWATCHED_SAVE_SECONDS
        if now - saved > (idle if saying == self._saying() else SAVE_SECONDS):
            self._saved = (now, self._saying())
            self._output.update(self._bundle(live=True))

    # The trial that is chosen.

    def _hear(self, _widget: Widget, content: Mapping[str, Any], _buffers: object) -> None:
        if content.get("kind") != "choose":
            return
        with self._lock:
            trial = content.get("trial")
            status = self._seen.status(trial) if isinstance(trial, int) else None
            if status is None:
                self._seen.chosen, self._answered, self.widget.detail = None, (None, 0), {}
            else:
                self._choose(status)

    def _choose(self, one: TrialStatus) -> None:
        number = self._seen.chosen = one.trial.number
        self._answered = (number, one.known.number)
        self.widget.detail = {"trial": number, "html": self._board(one)}

    def _board(self, one: TrialStatus) -> str:
        """Return the board of a trial: live if its run is going here, otherwise what is kept."""
        record = one.record
        if record is None:
            return ""
        run = self._runs.get(record.number)
        if run is None or run.over or not self.widget.hosted:
            return recorded(record, record.status, notices(record))["text/html"]
        if self._inner is None or self._inner.run is not run:
            if self._inner is not None:
                self._inner.close()
            self._inner = Board(run, Widget(), inside=True)
            self._inner.widget.hosted = True
        return framed("", self._inner.widget.label)


MEASURED, IDEAL, SPEED_UP = "measured", "ideal", "speed-up"


class NotebookScaling:
    """What a study found, as a saved notebook keeps it: it needs no script."""

    def __init__(self, found: Study) -> None:
        self.found = found

    def __repr__(self) -> str:
        return encodable("\n".join(scaling_lines(self.found)))

    def _repr_html_(self) -> str:
        head, *rows = scaling_cells(self.found)
        heads = "".join(text_cell("th", one) for one in head)
        body = "".join(f"<tr>{''.join(text_cell('td', one) for one in row)}</tr>" for row in rows)
        parts = [f"<b>{html.escape(scaling_words(self.found))}</b>", _speedups(self.found)]
        parts += [
            wide(heads, body),
            *(f"<p>{html.escape(one)}</p>" for one in scaling_notes(self.found)),
        ]
        return encodable(f'<div class="{UNTYPESET}">{"".join(parts)}</div>')


def _speedups(found: Study) -> str:
    """Return the speed-ups by the number of workers, with their spread, as one image."""
    known = [one for one in found.sizes if one.speedup and not one.alone]
    if len(known) < 2:  # noqa: PLR2004 - no line
        return ""
    points: list[Point] = []
    for one in known:
        for name, speedup in ((MEASURED, one.speedup), (IDEAL, found.ideal(one))):
            points.append(Point(len(points), Key(name, 1, SPEED_UP), one.workers, speedup))
    spans = [
        (float(one.workers), one.speedup - one.error, one.speedup + one.error)
        for one in known
        if one.speedup
    ]
    bands = {(MEASURED, SPEED_UP): spans}
    picture = Picture(points, [MEASURED, IDEAL], "workers", bands=bands)
    return image(picture, scaling_words(found))
