"""The table of runs in a notebook: plain HTML, and a view that sorts, filters and hides columns."""

from __future__ import annotations

import base64
import html
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mwmagic.model.status import RunState
from mwmagic.model.values import counted, sendable
from mwmagic.words.run import state_tone
from mwmagic.words.table import SAME_IN_ALL, RunTable

from .browser import interactive
from .static import COLOURS, TONES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mwmagic.words.table import Column

__all__ = ["NotebookTable"]

SHOWN_ROWS = 200
"""How many runs a page holds: a saved notebook keeps each twice, for pages without scripts too."""


LEFT = "text-align:left;white-space:nowrap"
"""How cells are set."""


class NotebookTable(RunTable):
    """The table, as a notebook shows it."""

    def _repr_html_(self) -> str:
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
        columns, notes = self._columns()
        notes += self.troubles
        facts = {
            "columns": [_told(one) for one in columns],
            "tones": [_tone(one.state) for one in self.facts],
            "notes": notes + more,
        }
        return interactive(self._plain(columns, notes + more), "table", sendable(facts))

    def _columns(self) -> tuple[list[Column], list[str]]:
        """Return the columns; those of a program's name and its tasks only if they differ."""
        columns = self.columns
        alike = [
            one for one in columns if one.name in ("program", "tasks") and len({*one.texts}) == 1
        ]
        if len(self.facts) == 1 or not alike:
            return columns, [self.alike] if self.alike else []
        told = ", ".join(f"{one.name}={one.texts[0]}" for one in alike)
        same = self.alike.removeprefix(SAME_IN_ALL)
        chosen = [replace(one, shown=False) if one in alike else one for one in columns]
        chosen.sort(key=lambda one: not one.shown)
        return chosen, [f"{SAME_IN_ALL}{', '.join(filter(None, [told, same]))}"]

    def _plain(self, columns: Sequence[Column], notes: Sequence[str]) -> str:
        shown = [one for one in columns if one.shown]
        head = "".join(f'<th style="{LEFT}">{html.escape(one.name)}</th>' for one in shown)
        body = "".join(
            f"<tr>{_row(shown, row, one.state)}</tr>" for row, one in enumerate(self.facts)
        )
        lines = "".join(f"<p>{html.escape(one)}</p>" for one in notes)
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        return f'<div style="overflow-x:auto">{table}</div>{lines}'


def _told(column: Column) -> dict[str, Any]:
    """Return a column as a page gets it."""
    told: dict[str, Any] = {"name": column.name, "shown": column.shown}
    told |= {"texts": column.texts, "keys": column.keys}
    optional = {"curves": column.curves, "best": column.best}
    return told | {name: value for name, value in optional.items() if value is not None}


def _tone(state: str) -> str:
    return state_tone(RunState(state))


def _row(columns: Sequence[Column], row: int, state: str) -> str:
    """Return a row: the first cell names it, with a mark in the colour of its state."""
    first, *others = columns
    mark = f"border-left:4px solid {TONES.get(_tone(state), 'transparent')}"
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
