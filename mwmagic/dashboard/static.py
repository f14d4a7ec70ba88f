"""What needs no kernel: a run as plain text, or as plain HTML with its charts as one SVG image.

Saved notebooks have it, and the dashboard where no page shows its widget; `front_end` holds the
files for the browser.
"""

from __future__ import annotations

import base64
import html
import math
import re
import time
from importlib.resources import files
from itertools import groupby
from typing import TYPE_CHECKING

from mwmagic.experiments.series import BY_TIME, SAVED, SPEED, read_series
from mwmagic.model.values import encodable
from mwmagic.words.host import host_progress, host_tone, host_usage, host_words
from mwmagic.words.run import (
    axis,
    blame,
    headline,
    metrics,
    progress_words,
    reached,
    remarks,
    run_tone,
    setbacks,
    setbacks_title,
    spent,
    task_words,
    tone,
)

from .journal import last_figures, pictures
from .rows import FOLDED_SETBACKS_COUNT, grouped

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from mwmagic.experiments.series import Point
    from mwmagic.model.status import RunStatus, TaskStatus
    from mwmagic.record import Record

    from .journal import Figure
    from .rows import HostGroup

__all__ = [
    "UNTYPESET",
    "Picture",
    "framed",
    "front_end",
    "image",
    "page",
    "recorded",
    "saved_words",
    "styles",
    "text",
]

UNTYPESET = "mathjax_ignore tex2jax_ignore"
"""Classes that keep MathJax 3 and 2 from reading a "$" in a log or a message as a formula."""


def front_end(*names: str) -> str:
    """Return files for the browser as one, without comments and indentation.

    Every notebook that shows a run may keep a copy.
    """
    texts = (files("mwmagic.dashboard").joinpath(one).read_text(encoding="utf-8") for one in names)
    return re.sub(r"^\s*//.*\n|^[ \t]+|^\n", "", "".join(texts), flags=re.MULTILINE)


def styles(*names: str) -> str:
    """Return style sheets for the browser as one, without spaces that mean nothing."""
    return re.sub(r"(?<=[{};,])\s+|\s+(?={)", "", front_end(*names))


TONES = {"good": "#2e7d32", "bad": "#d32f2f", "run": "#1a73e8", "wait": "#e65100"}
"""The colours of the marks beside states.

They are seen on any background. The words keep its ink: no colour can be read on both
white and black.
"""


def text(run: RunStatus, *, timed: bool = False) -> str:
    """Return a run's state as plain text: a line for it, and one for each task.

    On several hosts each of them has a line, and among many tasks only those that
    need attention. Notebooks keep it beside a page, without what was `timed`.
    """
    groups = grouped(run)
    lines = [line for group in groups for line in _group_text(group)] or _task_lines(run.tasks)
    earlier = setbacks(run, FOLDED_SETBACKS_COUNT)
    return encodable("\n".join([headline(run), *lines, *earlier, *remarks(run, timed=timed)]))


def _group_text(group: HostGroup) -> list[str]:
    words, progress = host_words(group.host, group.tasks), host_progress(group.tasks)
    head = "  ".join(filter(None, [f"  {group.host.name}", words, progress]))
    return [head, *(f"  {line}" for line in _task_lines(group.shown))]


def _task_lines(tasks: Mapping[str, TaskStatus]) -> list[str]:
    width = max(map(len, tasks), default=0)
    return [
        f"  {name:<{width}}  {task_words(task)}  {reached(task.progress)}".rstrip()
        for name, task in tasks.items()
    ]


def page(
    run: RunStatus,
    points: Sequence[Point] = (),
    label: str = "",
    figures: Sequence[Figure] = (),
    *,
    live: bool = False,
    notes: Sequence[str] = (),
) -> str:
    """Return a run's state as HTML without scripts; everything in it is escaped."""
    head = "⚠ " if run_tone(run) == "stall" else ""
    head += "<b>" + html.escape(headline(run)) + "</b>"
    head += f" <i>({saved_words()})</i>" if live else ""
    groups = grouped(run)
    rows = "".join(map(_group_rows, groups)) or _rows(run.tasks)
    parts = [head, f"<table>{rows}</table>", _picture(run, points), pictures(figures)]
    parts += [_cause(run), _earlier(run)]
    parts += [f"<p>{html.escape(one)}</p>" for one in (*notes, *remarks(run))]
    return framed("".join(parts), label)


def framed(content: str, label: str) -> str:
    """Return HTML in an element that holds the view of the widget with this label, if any."""
    # A page that removes the live view for a moment sets this to its height.
    height = f"min-height:var(--{label},0)" if label else ""
    name = f"mwmagic-static {UNTYPESET} {label}"
    return encodable(f'<div class="{name}" style="{height}">{content}</div>')


def recorded(record: Record, status: RunStatus, notes: Sequence[str]) -> dict[str, str]:
    """Return a recorded run as a notebook keeps it, as plain text and as HTML, with some notes."""
    points, figures = read_series(record, usage=True).points, last_figures(record.paths)
    html = page(status, points, figures=figures, live=not status.over, notes=notes)
    return {"text/plain": "\n".join([text(status), *notes]), "text/html": html}


def saved_words() -> str:
    """Say when this was saved of something that was going."""
    return f"still going at {time.strftime('%Y-%m-%d %H:%M:%S')}, when this was saved"


def _group_rows(group: HostGroup) -> str:
    host, tasks = group.host, group.tasks
    told = (host_words(host, tasks), host_progress(tasks), host_usage(host))
    rule = "border-top:1px solid #8885"
    return _cells(host.name, host_tone(host, tasks), told, rule) + _rows(group.shown, inside=True)


def _rows(tasks: Mapping[str, TaskStatus], *, inside: bool = False) -> str:
    return "".join(_row(name, task, inside=inside) for name, task in tasks.items())


def _row(name: str, task: TaskStatus, *, inside: bool) -> str:
    values = ", ".join(f"{metric} {value}" for metric, value in metrics(task.progress))
    place = " · ".join(filter(None, [spent(task), progress_words(task.progress)]))
    told = (task_words(task), place, values)
    return _cells(name, tone(task), told, "padding-left:2em" if inside else "", bold=not inside)


def _cells(
    name: str, kind: str, told: tuple[str, str, str], style: str = "", *, bold: bool = True
) -> str:
    """Return a row of the table, with a mark in the colour of its tone."""
    mark = f"border-left:4px solid {TONES.get(kind, 'transparent')}"
    title = f"<b>{html.escape(name)}</b>" if bold else html.escape(name)
    cells = zip((style, mark, "", ""), (title, *map(html.escape, told)), strict=True)
    return "<tr>" + "".join(f'<td style="text-align:left;{s}">{c}</td>' for s, c in cells) + "</tr>"


def _cause(run: RunStatus) -> str:
    lines = "\n".join(blame(run))
    return lines and f'<pre style="font-family:monospace">{html.escape(lines)}</pre>'


def _earlier(run: RunStatus) -> str:
    """Return why earlier attempts failed, folded if they are many."""
    if not run.setbacks:
        return ""
    opened = "" if len(run.setbacks) > FOLDED_SETBACKS_COUNT else " open"
    title, lines = map(html.escape, (setbacks_title(run), "\n".join(setbacks(run))))
    return f"<details{opened}><summary>{title}</summary><pre>{lines}</pre></details>"


def _picture(run: RunStatus, points: Sequence[Point]) -> str:
    """Return the metrics as a self-contained image, and their first and last values in words."""
    axes = [axis(task.progress) for task in run.tasks.values()]
    unsaved = set(BY_TIME) - set(SAVED)
    chosen = [point for point in points if point.key.metric not in unsaved]
    picture = Picture(chosen, list(run.tasks), axes[0] if axes else "", brief=bool(run.hosts))
    if not set(picture.metrics).difference(BY_TIME):
        return ""
    lines = [
        f"{name}: {first:.4g} at the start, {last:.4g} at the end"
        for name, first, last in picture.values
    ]
    return image(picture, "; ".join(lines), lines[0])


def image(picture: Picture, words: str, below: str = "") -> str:
    """Return a picture as HTML, with words for those who cannot see it, and a line below it."""
    source = base64.b64encode(encodable(picture.svg).encode()).decode()
    drawn = (
        f'<img alt="{html.escape(words)}" src="data:image/svg+xml;base64,{source}" '
        f'width="{picture.width}">'
    )
    line = f"<br>{html.escape(below)}" if below else ""
    return f'<div style="overflow-x:auto">{drawn}{line}</div>'


WIDTH_PIXELS, HEIGHT_PIXELS = 410, 170
"""Size of a chart."""

LEFT_PIXELS, RIGHT_PIXELS, TOP_PIXELS, BOTTOM_PIXELS = 62, 396, 24, 128
"""The edges of the area of the curves in a chart."""

ENTRY_PIXELS, LINE_PIXELS = 130, 15
"""Width of an entry of the legend, and height of a line of it."""

MOST_POINTS, MOST_POINTS_OF_A_CURVE = 8000, 200
"""The most points drawn in total, and per curve."""

MOST_EPOCHS = 8
"""Maximum number of epochs marked in a chart."""

LETTER_PIXELS, SPACE_PIXELS = 6, 8
"""Width of a character, and the least space between the names of two epochs."""

NUMBER_CHARACTERS = 8
"""The longest number that fits beside a chart without an exponent."""

TITLE_CHARACTERS = 22
"""The longest metric name that fits beside a chart."""

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
"""The palette of Okabe and Ito, made for colour-blind readers."""

DASHES = ("", "6 3", "2 3", "8 3 2 3")
"""The patterns of the curves, one for each round through the colours."""

DISTINCT_CURVES = len(COLOURS) * len(DASHES)
"""How many tasks have a look of their own; those after them look like the first ones."""

INK = "#7f7f7f"
"""The colour of words and numbers, and of the faint lines behind the curves.

The image cannot know the page's theme: its contrast is 4 on white and on JupyterLab's dark grey.
"""


Spread = tuple[float, float, float]
"""A place on the x axis, with the lowest and the highest value there."""


class Picture:
    """A chart of each metric, with a legend."""

    def __init__(
        self,
        points: Sequence[Point],
        tasks: Sequence[str],
        axis: str,
        *,
        brief: bool = False,
        bands: Mapping[tuple[str, str], Sequence[Spread]] | None = None,
    ) -> None:
        self._tasks, self._axis, self._bands = tasks, axis, bands or {}
        self._named = tasks[:DISTINCT_CURVES] if brief else tasks
        found: dict[str, list[Point]] = {}
        for point in points:
            if point.key.metric is not None:
                found.setdefault(point.key.metric, []).append(point)
        self._epochs = _latest([point for point in points if point.key.metric is None])
        drawn = [name for name in found if any(p.y is not None for p in found[name])]
        self.metrics = sorted(drawn, key=_order)
        self._points = {name: found[name] for name in self.metrics}
        keys = {p.key for chosen in self._points.values() for p in chosen}
        self._most = min(MOST_POINTS_OF_A_CURVE, max(MOST_POINTS // max(len(keys), 1), 2))

    @property
    def values(self) -> list[tuple[str, float, float]]:
        """Each metric with its first and its last value."""
        told = []
        for name, points in self._points.items():
            known = [p.y for p in points if p.y is not None]
            told.append((name, known[0], known[-1]))
        return told

    @property
    def width(self) -> int:
        """The width in pixels."""
        return WIDTH_PIXELS * min(len(self.metrics), 2)

    @property
    def svg(self) -> str:
        """The image."""
        charts = "".join(self._placed(index, name) for index, name in enumerate(self.metrics))
        top = HEIGHT_PIXELS * math.ceil(len(self.metrics) / 2)
        columns = self.width // ENTRY_PIXELS
        height = top + LINE_PIXELS * math.ceil(len(self._named) / columns) + 4
        legend = "".join(
            _legend_entry(
                index,
                name,
                10 + index % columns * ENTRY_PIXELS,
                top + index // columns * LINE_PIXELS,
            )
            for index, name in enumerate(self._named)
        )
        size = f'width="{self.width}" height="{height}" viewBox="0 0 {self.width} {height}"'
        font = f'font-family="sans-serif" font-size="11" fill="{INK}"'
        return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {font}>{charts}{legend}</svg>'

    def _placed(self, index: int, name: str) -> str:
        x, y = index % 2 * WIDTH_PIXELS, index // 2 * HEIGHT_PIXELS
        spans = {task: self._bands.get((task, name), ()) for task in self._tasks}
        edges = [edge for all_ in spans.values() for _, *both in all_ for edge in both]
        chart = _Chart(self._points[name], edges, zeroed=name == SPEED)
        bands = "".join(chart.band(i, spans[task]) for i, task in enumerate(self._tasks))
        lines = chart.curves(self._tasks, self._most)
        axis = "seconds" if name in BY_TIME else self._axis
        epochs = chart.epochs(self._epochs) if axis == "step" else ""
        parts = f"{chart.numbers()}{epochs}{bands}{lines}{_titles(name, axis)}"
        return f'<g transform="translate({x},{y})">{parts}</g>'


class _Chart:
    """One metric's curves and their scales."""

    def __init__(
        self, points: Sequence[Point], edges: Sequence[float] = (), *, zeroed: bool
    ) -> None:
        self._points = points
        xs = [p.x for p in points]
        ys = [*(p.y for p in points if p.y is not None), *edges]
        self._x0, self._x1 = min(xs), max(xs)
        if self._x0 == self._x1:
            self._x0, self._x1 = self._x0 - 1, self._x1 + 1
        pad = 0.08 * ((max(ys) - min(ys)) or abs(max(ys)) or 1.0)
        self._y0, self._y1 = (0.0 if zeroed and min(ys) >= 0 else min(ys) - pad), max(ys) + pad

    def _x(self, x: float) -> float:
        part = (x - self._x0) / (self._x1 - self._x0)
        return LEFT_PIXELS + part * (RIGHT_PIXELS - LEFT_PIXELS)

    def _y(self, y: float) -> float:
        part = (self._y1 - y) / (self._y1 - self._y0)
        return TOP_PIXELS + part * (BOTTOM_PIXELS - TOP_PIXELS)

    def numbers(self) -> str:
        """Draw the numbers of both axes, and a line at each of the y axis."""
        heights = list(_ticks(self._y0, self._y1))
        drawn = [
            f'<path d="M{LEFT_PIXELS} {self._y(y):.1f}H{RIGHT_PIXELS}" stroke="{INK}" '
            f'stroke-opacity="0.3"/>' + _svg_text(LEFT_PIXELS - 5, self._y(y) + 4, label, "end")
            for y, label in zip(heights, _labels(heights), strict=True)
        ]
        drawn += [
            _svg_text(self._x(x), BOTTOM_PIXELS + 15, f"{x:.12g}", "middle")
            for x in _ticks(self._x0, self._x1, least=1.0)
        ]
        return "".join(drawn)

    def epochs(self, marks: Sequence[Point]) -> str:
        """Mark where epochs begin, with the names that there is room for above the curves."""
        marks = [mark for mark in marks if self._x0 <= mark.x <= self._x1]
        drawn, free = "", 0.0
        for mark in marks[:: math.ceil(len(marks) / MOST_EPOCHS) or 1]:
            name = f"epoch {mark.y:.0f}"
            width = LETTER_PIXELS * len(name)
            start = min(self._x(mark.x), WIDTH_PIXELS - width)
            drawn += (
                f'<path d="M{self._x(mark.x):.1f} {TOP_PIXELS}V{BOTTOM_PIXELS}" stroke="{INK}" '
                f'stroke-width="0.7" stroke-dasharray="1 4"/>'
            )
            if start >= free:
                drawn += _svg_text(start, TOP_PIXELS - 6, name, "start")
                free = start + width + SPACE_PIXELS
        return drawn

    def band(self, index: int, spans: Sequence[Spread]) -> str:
        """Fill what is between the lowest and the highest of several values at each place."""
        if not spans:
            return ""
        lower = [f"{self._x(x):.1f} {self._y(low):.1f}" for x, low, _ in spans]
        upper = [f"{self._x(x):.1f} {self._y(high):.1f}" for x, _, high in reversed(spans)]
        fill = COLOURS[index % len(COLOURS)]
        return f'<path d="M{"L".join([*lower, *upper])}Z" fill="{fill}" fill-opacity="0.2"/>'

    def curves(self, tasks: Sequence[str], most: int) -> str:
        """Draw a line for each task and attempt; those of earlier attempts are faint."""
        lines: dict[tuple[int, int], list[Point]] = {}
        for point in self._points:
            key = (point.key.attempt, tasks.index(point.key.task))
            lines.setdefault(key, []).append(point)
        last = max(attempt for attempt, _ in lines)
        return "".join(
            self._curve(index, _thin(points, most), faint=attempt < last)
            for (attempt, index), points in sorted(lines.items())
        )

    def _curve(self, index: int, points: Sequence[Point], *, faint: bool) -> str:
        drawn, dots = "", ""
        # A value that is not a number leaves a gap.
        for known, together in groupby(points, key=lambda point: point.y is not None):
            places = [f"{self._x(p.x):.1f} {self._y(p.y):.1f}" for p in together if p.y is not None]
            if len(places) == 1:
                dots += f"M{places[0]}h0"
            elif known:
                drawn += "M" + "L".join(places)
        opacity = f'stroke-linecap="round" opacity="{0.4 if faint else 1}"'
        looks = ((drawn, _stroke(index)), (dots, _dot(index)))
        return "".join(f'<path d="{path}" {look} {opacity}/>' for path, look in looks if path)


def _order(name: str) -> tuple[bool, bool, bool, bool]:
    """Sort the losses first, then the speed, and last what the tasks use."""
    return name in BY_TIME, name != "loss", "loss" not in name, name != SPEED


def _latest(marks: Sequence[Point]) -> list[Point]:
    """Return the marks of the latest attempt, of one task."""
    latest = max((mark.key.attempt for mark in marks), default=0)
    of_it = [mark for mark in marks if mark.key.attempt == latest]
    return [mark for mark in of_it if mark.key == of_it[0].key]


def _ticks(low: float, high: float, least: float = 0.0) -> Iterator[float]:
    """Yield some round numbers between two others, no nearer to each other than `least`."""
    rough = max((high - low) / 5, least)
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * n for n in (1, 2, 5, 10) if unit * n >= rough)
    for number in range(math.ceil(low / step), math.floor(high / step) + 1):
        yield number * step


def _labels(values: Sequence[float]) -> list[str]:
    """Return numbers for an axis, with an exponent if one of them would not fit beside it."""
    texts = [f"{value:.6g}" for value in values]
    if all(len(text) <= NUMBER_CHARACTERS for text in texts):
        return texts
    step = math.floor(math.log10(abs(values[1] - values[0]))) if len(values) > 1 else 0
    return [_powered(value, step) for value in values]


def _powered(value: float, step: int) -> str:
    """Return a number with an exponent and the digits down to a power of ten, or half of them."""
    if not value:
        return "0"
    digits = max(0, min(math.floor(math.log10(abs(value))) - step, NUMBER_CHARACTERS // 2))
    mantissa, power = f"{value:.{digits}e}".split("e")
    return f"{mantissa}e{int(power)}"


def _thin(points: list[Point], most: int) -> list[Point]:
    """Keep at most so many points, and the last one."""
    stride = math.ceil(len(points) / most)
    return [*points[:-1:stride], points[-1]]


def _svg_text(x: float, y: float, text: str, anchor: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{html.escape(text)}</text>'


def _titles(metric: str, axis: str) -> str:
    turned = f' transform="rotate(-90 12 {(TOP_PIXELS + BOTTOM_PIXELS) / 2})"'
    below = _svg_text((LEFT_PIXELS + RIGHT_PIXELS) / 2, BOTTOM_PIXELS + 30, axis, "middle")
    return below + _svg_text(12, (TOP_PIXELS + BOTTOM_PIXELS) / 2, _short(metric), "middle", turned)


def _short(name: str) -> str:
    """Shorten a title to the height of a chart; names differ at their ends as much as anywhere."""
    half = TITLE_CHARACTERS // 2
    return name if len(name) <= TITLE_CHARACTERS else f"{name[: half - 1]}…{name[-half:]}"


def _stroke(index: int, width: float = 1.6) -> str:
    dashes = DASHES[index // len(COLOURS) % len(DASHES)]
    colour = COLOURS[index % len(COLOURS)]
    return f'fill="none" stroke="{colour}" stroke-width="{width}" stroke-dasharray="{dashes}"'


def _dot(index: int) -> str:
    return f'stroke="{COLOURS[index % len(COLOURS)]}" stroke-width="6"'


def _legend_entry(index: int, name: str, x: float, y: float) -> str:
    """Draw a task's line and its name in the legend."""
    return f'<path d="M{x} {y + 4}h18" {_stroke(index, 2.0)}/>' + _svg_text(
        x + 23, y + 8, name, "start"
    )
