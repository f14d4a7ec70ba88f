"""Recorded runs as they are shown: a table, and some side by side.

In a notebook each is plain HTML, and a view that sorts, filters and draws if the page runs scripts.
"""

from __future__ import annotations

import base64
import html
import json
import sys
from copy import copy
from functools import cache
from typing import TYPE_CHECKING, Any

from mwmagic.experiments.compare import compare
from mwmagic.experiments.series import Key, Point
from mwmagic.logs.terminal import printable
from mwmagic.model.values import counted, encodable, sendable
from mwmagic.words.comparison import (
    alike,
    cells,
    code_lines,
    conclusion,
    plain,
    row_name,
    tables,
)
from mwmagic.words.table import SAME_IN_ALL, RunTable

from .static import COLOURS, TONES, UNTYPESET, Picture, front_end, image, styles

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from IPython.lib.pretty import RepresentationPrinter

    from mwmagic.experiments.compare import Aspect, Curve, CurvePoint, SideBySide
    from mwmagic.record import Record
    from mwmagic.words.sweep import TrialTable
    from mwmagic.words.table import Column

__all__ = [
    "SHOWN_ROWS",
    "NotebookComparison",
    "NotebookTable",
    "column_facts",
    "curves_image",
    "curves_picture",
    "interactive",
    "plain_table",
    "point_facts",
    "printed",
    "run_label",
    "text_cell",
    "wide",
]

SHOWN_ROWS = 200
"""How many runs a page holds: a saved notebook keeps each twice, for pages without scripts too."""


LEFT = "text-align:left;white-space:nowrap"
"""How cells are set."""


@cache
def _script() -> str:
    looks = json.dumps(styles("chart.css", "runs.css"))
    code = front_end("chart.js", "runs.js", "sweep.js", "views.js")
    return f"(()=>{{const LOOKS={looks};{code}}})()"


def interactive(plain: str, kind: str, facts: object) -> str:
    """Return HTML that can be read as it is, and that a script shows in a view that acts.

    `plain` is all that a page shows that runs no scripts, as a saved notebook's that is untrusted.
    `kind` is the view, ``table``, ``comparison`` or ``sweep``, and `facts` what it shows, as JSON
    can hold it.
    """
    text = json.dumps(facts, separators=(",", ":"), default=str).replace("<", "\\u003c")
    return encodable(
        f'<div class="mwmagic-view {UNTYPESET}"><div class="mwmagic-plain">{plain}</div>'
        f'<script type="application/json" class="mwmagic-{kind}">{text}</script>'
        f"<script>{_script()}</script></div>"
    )


def wide(heads: str, rows: str) -> str:
    """Return a table that scrolls where it is wider than the page."""
    table = f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"
    return f'<div style="overflow-x:auto">{table}</div>'


class NotebookTable(RunTable):
    """The table, as a notebook shows it."""

    def _repr_html_(self) -> str:
        return self.as_html()

    def _repr_pretty_(self, printer: RepresentationPrinter, _cycle: bool) -> None:
        printer.text(printed(self))

    def as_html(self) -> str:
        """Return the rows as HTML that a notebook keeps: it can be sorted and filtered there."""
        if not self.facts:
            return html.escape(self.nothing())
        left = len(self.facts) - SHOWN_ROWS
        if left <= 0:
            return self.page([])
        part = copy(self)
        # The latest, unless the reader has asked for another order.
        part.facts = self.facts[:SHOWN_ROWS] if self.ordered else self.facts[left:]
        how = "--where, --last and --best choose, and `mwmagic runs` prints all"
        return part.page([f"{counted(left, 'more run')}: {how}"])

    def page(self, more: list[str]) -> str:
        """Return the rows as HTML, with more lines below them."""
        columns, notes = self.columns()
        facts = {
            "columns": [column_facts(one) for one in columns],
            "tones": self.tones,
            "notes": notes + more,
        }
        plain = plain_table(columns, self.tones, notes + more)
        return interactive(plain, "table", sendable(facts))


def printed(table: RunTable | TrialTable) -> str:
    """Return a table as a terminal shows it, or as plain text where the output is none."""
    if not sys.stdout.isatty():
        return printable(repr(table))
    from .terminal import coloured

    return coloured(table)


def plain_table(columns: Sequence[Column], tones: Sequence[str], notes: Sequence[str]) -> str:
    """Return rows as HTML without scripts, each with a mark in the colour of its tone."""
    shown = [one for one in columns if one.shown]
    head = "".join(f'<th style="{LEFT}">{html.escape(one.name)}</th>' for one in shown)
    body = "".join(f"<tr>{_row(shown, row, tone)}</tr>" for row, tone in enumerate(tones))
    lines = "".join(f"<p>{html.escape(one)}</p>" for one in notes)
    return f"{wide(head, body)}{lines}"


def column_facts(column: Column) -> dict[str, Any]:
    """Return a column as a page gets it."""
    found: dict[str, Any] = {"name": column.name, "shown": column.shown}
    found |= {"texts": column.texts, "keys": column.keys}
    optional = {"curves": column.curves, "best": column.best}
    return found | {name: value for name, value in optional.items() if value is not None}


def _row(columns: Sequence[Column], row: int, tone: str) -> str:
    """Return a row: the first cell names it, with a mark in the colour of its state."""
    first, *others = columns
    mark = f"border-left:4px solid {TONES.get(tone, 'transparent')}"
    head = f'<th scope="row" style="{LEFT};{mark}">{html.escape(first.texts[row])}</th>'
    return head + "".join(_cell(one, row) for one in others)


def _cell(column: Column, row: int) -> str:
    text = html.escape(column.texts[row])
    if column.curves is not None:
        text = _spark(column.curves[row], text)
    elif column.best == row:
        text = f"<b>{text}</b>"
    return f'<td style="{LEFT}">{text}</td>'


WIDTH_PIXELS, HEIGHT_PIXELS = 90, 18
"""Size of the line of a metric."""


def _spark(values: Sequence[float], words: str) -> str:
    """Draw a line as high as a word; escaped words say the same."""
    if not values:
        return ""
    low, high = min(values), max(values)
    across, up = (
        (WIDTH_PIXELS - 4) / max(len(values) - 1, 1),
        (HEIGHT_PIXELS - 4) / (high - low or 1),
    )
    places = [
        f"{2 + across * i:.1f} {HEIGHT_PIXELS - 2 - up * (value - low):.1f}"
        for i, value in enumerate(values)
    ]
    size = f'width="{WIDTH_PIXELS}" height="{HEIGHT_PIXELS}"'
    look = f'fill="none" stroke="{COLOURS[0]}" stroke-width="1.8" stroke-linecap="round"'
    path = f'<path d="M{"L".join(places)}{"" if len(places) > 1 else "h0"}" {look}/>'
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{path}</svg>'
    source = base64.b64encode(svg.encode()).decode()
    return f'<img alt="{words}" {size} src="data:image/svg+xml;base64,{source}">'


class NotebookComparison:
    """Two runs or more side by side, with some metrics first: by default a loss and an accuracy."""

    def __init__(self, records: Sequence[Record], metrics: Sequence[str] = ()) -> None:
        self.found = compare(records, metrics)

    def __repr__(self) -> str:
        return plain(self.found)

    def _repr_html_(self) -> str:
        return interactive(_plain(self.found), "comparison", sendable(_facts(self.found)))


def _facts(found: SideBySide) -> dict[str, Any]:
    """Return a comparison as a page gets it."""
    numbers = [one.number for one in found.facts]
    return {
        "title": conclusion(found),
        "runs": _labels(found),
        "tables": [
            [name, [[row_name(row), *cells(found, row)] for row in rows]]
            for name, rows in tables(found)
        ],
        "alike": alike(found),
        "code": code_lines(found),
        "metrics": found.metrics,
        "axes": found.axes,
        "curves": [
            [numbers.index(one.run), one.metric, [point_facts(point) for point in one.points]]
            for one in found.curves
        ],
    }


def _labels(found: SideBySide) -> list[str]:
    return [run_label(one.number) for one in found.facts]


def run_label(number: int) -> str:
    """Return what a run is called beside others."""
    return f"run {number}"


def point_facts(one: CurvePoint) -> list[float | None]:
    """Return a point without the spread of workers that have the same value."""
    return list(one[:4] if one.low == one.high else one)


def _plain(found: SideBySide) -> str:
    parts = [f"<b>{html.escape(conclusion(found))}</b>", _picture(found), _plain_table(found)]
    same, code = alike(found), code_lines(found)
    parts += [f"<p>{html.escape(SAME_IN_ALL + same)}</p>"] if same else []
    text = html.escape("\n".join(code))
    parts += [f'<pre style="font-family:monospace">{text}</pre>'] if code else []
    return "".join(parts)


def _plain_table(found: SideBySide) -> str:
    heads = "".join(text_cell("th", name) for name in ["", *_labels(found)])
    rows = ""
    for name, several in tables(found):
        rows += f"<tr>{text_cell('th', name)}</tr>"
        rows += "".join(f"<tr>{_aspect_row(found, row)}</tr>" for row in several)
    return wide(heads, rows)


def _aspect_row(found: SideBySide, row: Aspect) -> str:
    return "".join(text_cell("td", text) for text in [row_name(row), *cells(found, row)])


def text_cell(kind: str, text: str) -> str:
    """Return a cell, a ``th`` or a ``td``."""
    return f'<{kind} style="text-align:left">{html.escape(text)}</{kind}>'


def _picture(found: SideBySide) -> str:
    """Return the curves of the chosen metrics as one image."""
    chosen = [one for one in found.curves if one.metric in found.metrics]
    labels = dict(zip((one.number for one in found.facts), _labels(found), strict=True))
    return curves_image(chosen, labels, found.axes[0], conclusion(found))


def curves_image(curves: Sequence[Curve], labels: Mapping[int, str], axis: str, words: str) -> str:
    """Return the curves of some runs as one image, each run by the label of its number."""
    picture = curves_picture(curves, labels, axis)
    return image(picture, words) if picture.metrics else ""


def curves_picture(curves: Sequence[Curve], labels: Mapping[int, str], axis: str) -> Picture:
    """Return charts of runs' curves, with a band for the spread of the workers of each run."""
    points = [
        Point(0, Key(labels[one.run], 1, one.metric), x, point.value)
        for one in curves
        for point in one.points
        if (x := getattr(point, axis)) is not None
    ]
    bands = {
        (labels[one.run], one.metric): [
            (getattr(point, axis), point.low, point.high)
            for point in one.points
            if point.low is not None and point.high is not None and point.low != point.high
        ]
        for one in curves
    }
    return Picture(points, list(labels.values()), axis, bands=bands)
