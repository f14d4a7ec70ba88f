"""The comparison of runs in a notebook: plain HTML with an image, and a view with live charts."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

from mwmagic.experiments.compare import compare
from mwmagic.experiments.series import Key, Point
from mwmagic.model.values import sendable
from mwmagic.words.comparison import alike, cells, code_lines, conclusion, plain, tables
from mwmagic.words.table import SAME_IN_ALL

from .browser import interactive
from .static import Picture, image

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mwmagic.experiments.compare import Aspect, CurvePoint, SideBySide
    from mwmagic.record import Record

__all__ = ["NotebookComparison"]


class NotebookComparison:
    """Runs side by side.

    Parameters
    ----------
    records : sequence of Record
        Two or more runs.
    metrics : sequence of str
        Those to show first; by default a loss and an accuracy.

    Raises
    ------
    BadArguments
        There are fewer than two or too many, or no run has such a metric.
    """

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
            [name, [[row.name, *cells(found, row)] for row in rows]] for name, rows in tables(found)
        ],
        "alike": alike(found),
        "code": code_lines(found),
        "metrics": found.metrics,
        "axes": found.axes,
        "curves": [
            [numbers.index(one.run), one.metric, [_point(point) for point in one.points]]
            for one in found.curves
        ],
    }


def _labels(found: SideBySide) -> list[str]:
    return [f"run {one.number}" for one in found.facts]


def _point(one: CurvePoint) -> list[float | None]:
    """Return a point without the spread of workers that have the same value."""
    return list(one[:4] if one.low == one.high else one)


def _plain(found: SideBySide) -> str:
    parts = [f"<b>{html.escape(conclusion(found))}</b>", _picture(found), _table(found)]
    same, code = alike(found), code_lines(found)
    parts += [f"<p>{html.escape(SAME_IN_ALL + same)}</p>"] if same else []
    text = html.escape("\n".join(code))
    parts += [f'<pre style="font-family:monospace">{text}</pre>'] if code else []
    return "".join(parts)


def _table(found: SideBySide) -> str:
    heads = "".join(_cell("th", name) for name in ["", *_labels(found)])
    rows = ""
    for name, several in tables(found):
        rows += f"<tr>{_cell('th', name)}</tr>"
        rows += "".join(f"<tr>{_row(found, row)}</tr>" for row in several)
    table = f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"
    return f'<div style="overflow-x:auto">{table}</div>'


def _row(found: SideBySide, row: Aspect) -> str:
    return "".join(_cell("td", text) for text in [row.name, *cells(found, row)])


def _cell(kind: str, text: str) -> str:
    return f'<{kind} style="text-align:left">{html.escape(text)}</{kind}>'


def _picture(found: SideBySide) -> str:
    """Return the curves of the chosen metrics as one image."""
    axis = found.axes[0]
    labels = dict(zip((one.number for one in found.facts), _labels(found), strict=True))
    points = [
        Point(0, Key(labels[one.run], 1, one.metric), x, point.value)
        for one in found.curves
        if one.metric in found.metrics
        for point in one.points
        if (x := getattr(point, axis)) is not None
    ]
    bands = {
        (labels[one.run], one.metric): [
            (getattr(point, axis), point.low, point.high)
            for point in one.points
            if point.low is not None and point.high is not None and point.low != point.high
        ]
        for one in found.curves
    }
    picture = Picture(points, list(labels.values()), axis, bands=bands)
    return image(picture, conclusion(found)) if picture.metrics else ""
