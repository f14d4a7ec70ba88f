"""The dashboard of a saved notebook: plain text and plain HTML."""

from __future__ import annotations

import base64
import html
import time
from typing import TYPE_CHECKING

from mwmagic.model.text import encodable
from mwmagic.words.failure import explain
from mwmagic.words.run import headline, metrics, place, reached, remarks, task_words, tone

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mwmagic.model.status import RunStatus, TaskStatus

    from .series import Point

__all__ = ["chart", "page", "text"]

WIDTH_PIXELS, HEIGHT_PIXELS = 480, 120
"""Size of the picture of the loss."""

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
"""The palette of Okabe and Ito, made for colour-blind readers."""

UNTYPESET = "mathjax_ignore tex2jax_ignore"
"""Classes that keep MathJax 3 and 2 from reading a "$" in a log or a message as a formula."""

TONES = {"good": "#2e7d32", "bad": "#d32f2f", "run": "#1a73e8", "wait": "#e65100"}


def text(run: RunStatus) -> str:
    """Return a run's state as plain text: a line for it, and one for each task.

    Parameters
    ----------
    run : RunStatus
        Its status. What differs from one execution to the next, such as ports
        and process ids, is left out, so that saved outputs can be compared.
    """
    lines = [headline(run)]
    width = max(map(len, run.tasks), default=0)
    for name, task in run.tasks.items():
        lines.append(f"  {name:<{width}}  {task_words(task)}  {reached(task.progress)}".rstrip())
    return encodable("\n".join([*lines, *remarks(run)]))


def page(
    run: RunStatus,
    points: Sequence[Point] = (),
    label: str = "",
    *,
    live: bool = False,
    note: str = "",
) -> str:
    """Return a run's state as HTML without scripts; everything in it is escaped.

    Parameters
    ----------
    run : RunStatus
        Its status.
    points : sequence of Point
        Its metrics.
    label : str
        The class by which a page finds the element.
    live : bool
        Whether the run is still going.
    note : str
        What else is said of it.
    """
    head = "<b>" + html.escape(headline(run)) + "</b>"
    head += f" <i>(still going at {_now()}, when this was saved)</i>" if live else ""
    rows = "".join(_row(name, task) for name, task in run.tasks.items())
    parts = [head, f"<table>{rows}</table>", _picture(run, points), _cause(run)]
    said = filter(None, [note, *remarks(run)])
    parts += [f"<p>{html.escape(one)}</p>" for one in said]
    # A page that removes the live view for a moment sets this to its height.
    height = f"min-height:var(--{label},0)" if label else ""
    name = f"mwmagic-static {UNTYPESET} {label}"
    return encodable(f'<div class="{name}" style="{height}">{"".join(parts)}</div>')


def _now() -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S")


def _row(name: str, task: TaskStatus) -> str:
    colour = TONES.get(tone(task), "inherit")
    words = f'<span style="color:{colour}">{html.escape(task_words(task))}</span>'
    values = ", ".join(f"{metric} {value}" for metric, value in metrics(task.progress))
    cells = [f"<b>{html.escape(name)}</b>", words]
    cells += [html.escape(place(task.progress)), html.escape(values)]
    return "<tr>" + "".join(f'<td style="text-align:left">{cell}</td>' for cell in cells) + "</tr>"


def _cause(run: RunStatus) -> str:
    if not run.cause:
        return ""
    lines = "\n".join(explain(run.cause))
    return f'<pre style="font-family:monospace">{html.escape(lines)}</pre>'


def _picture(run: RunStatus, points: Sequence[Point]) -> str:
    """Return the loss as a self-contained image, and its first and last values in words."""
    names = dict.fromkeys(point.key.metric for point in points)
    metric = next((name for name in names if "loss" in name), None)
    chosen = [p for p in points if p.key.metric == metric and p.y is not None]
    if not chosen:
        return ""
    first, last = chosen[0].y, chosen[-1].y
    words = html.escape(f"{metric}: {first:.4g} at the start, {last:.4g} at the end")
    picture = base64.b64encode(encodable(chart(chosen, list(run.tasks))).encode()).decode()
    source = f"data:image/svg+xml;base64,{picture}"
    return f'<div><img alt="{words}" src="{source}" width="{WIDTH_PIXELS}"><br>{words}</div>'


def chart(points: Sequence[Point], names: Sequence[str]) -> str:
    """Draw points of one metric as an SVG image, a line for each task and attempt."""
    xs = [point.x for point in points]
    ys = [point.y for point in points if point.y is not None]
    x0, dx = min(xs), (max(xs) - min(xs)) or 1.0
    y0, dy = min(ys), (max(ys) - min(ys)) or 1.0
    lines: dict[tuple[str, int], list[str]] = {}
    for point in points:
        if point.y is not None:
            x = 6 + (point.x - x0) / dx * (WIDTH_PIXELS - 12)
            y = 6 + (1 - (point.y - y0) / dy) * (HEIGHT_PIXELS - 12)
            key = (point.key.task, point.key.attempt)
            lines.setdefault(key, []).append(f"{x:.1f},{y:.1f}")
    last = max(attempt for _, attempt in lines)
    drawn = "".join(
        _line(_thin(places), names.index(task), faint=attempt < last)
        for (task, attempt), places in lines.items()
    )
    frame = f'<path d="M1,1V{HEIGHT_PIXELS - 1}H{WIDTH_PIXELS - 1}" fill="none" stroke="#888"/>'
    size = f'width="{WIDTH_PIXELS}" height="{HEIGHT_PIXELS}"'
    box = f'viewBox="0 0 {WIDTH_PIXELS} {HEIGHT_PIXELS}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {box}>{frame}{drawn}</svg>'


def _thin(places: list[str]) -> list[str]:
    """Keep as many points as a small picture can show, and the last one."""
    stride = len(places) // 200 + 1
    return [*places[:-1:stride], places[-1]]


def _line(places: list[str], index: int, *, faint: bool) -> str:
    dashes = ("", "6 3", "2 3", "8 3 2 3")[index // len(COLOURS) % 4]
    style = f'stroke="{COLOURS[index % len(COLOURS)]}" stroke-dasharray="{dashes}"'
    look = f'fill="none" stroke-width="1.6" opacity="{0.4 if faint else 1}"'
    return f'<polyline points="{" ".join(places)}" {style} {look}/>'
