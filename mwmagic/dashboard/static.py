"""The dashboard of a saved notebook: plain text and plain HTML."""

from __future__ import annotations

import base64
import html
import time
from typing import TYPE_CHECKING

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
    spent,
    task_words,
    tone,
)

from .groups import grouped
from .picture import Picture

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mwmagic.model.status import RunStatus, TaskStatus

    from .groups import HostGroup
    from .series import Point

__all__ = ["page", "text"]

UNTYPESET = "mathjax_ignore tex2jax_ignore"
"""Classes that keep MathJax 3 and 2 from reading a "$" in a log or a message as a formula."""

TONES = {"good": "#2e7d32", "bad": "#d32f2f", "run": "#1a73e8", "wait": "#e65100"}
"""The colours of the marks beside states.

They are seen on any background. The words keep its ink: no colour can be read on both
white and black.
"""


def text(run: RunStatus) -> str:
    """Return a run's state as plain text: a line for it, and one for each task.

    On several hosts each of them has a line, and among many tasks only those that
    need attention.
    """
    groups = grouped(run)
    lines = [line for group in groups for line in _group_text(group)] or _task_lines(run.tasks)
    return encodable("\n".join([headline(run), *lines, *remarks(run, timed=False)]))


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
    *,
    live: bool = False,
    note: str = "",
) -> str:
    """Return a run's state as HTML without scripts; everything in it is escaped."""
    head = "⚠ " if run_tone(run) == "stall" else ""
    head += "<b>" + html.escape(headline(run)) + "</b>"
    head += f" <i>(still going at {_now()}, when this was saved)</i>" if live else ""
    groups = grouped(run)
    rows = "".join(map(_group_rows, groups)) or _rows(run.tasks)
    parts = [head, f"<table>{rows}</table>", _picture(run, points), _cause(run)]
    said = filter(None, [note, *remarks(run)])
    parts += [f"<p>{html.escape(one)}</p>" for one in said]
    # A page that removes the live view for a moment sets this to its height.
    height = f"min-height:var(--{label},0)" if label else ""
    name = f"mwmagic-static {UNTYPESET} {label}"
    return encodable(f'<div class="{name}" style="{height}">{"".join(parts)}</div>')


def _now() -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S")


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


def _picture(run: RunStatus, points: Sequence[Point]) -> str:
    """Return the metrics as a self-contained image, and their first and last values in words."""
    axes = [axis(task.progress) for task in run.tasks.values()]
    picture = Picture(points, list(run.tasks), axes[0] if axes else "", brief=bool(run.hosts))
    if not picture.metrics:
        return ""
    lines = [
        f"{name}: {first:.4g} at the start, {last:.4g} at the end"
        for name, first, last in picture.values
    ]
    source = base64.b64encode(encodable(picture.svg).encode()).decode()
    told = html.escape("; ".join(lines))
    image = f'<img alt="{told}" src="data:image/svg+xml;base64,{source}" width="{picture.width}">'
    return f'<div style="overflow-x:auto">{image}<br>{html.escape(lines[0])}</div>'
