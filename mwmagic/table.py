"""Rows of text as those of an HTML table."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["html_rows"]


def html_rows(rows: Iterable[Iterable[str]], cell: str = "<td>") -> str:
    """Return rows of text as those of an HTML table; the texts are escaped.

    Parameters
    ----------
    rows : iterable of iterable of str
        The text of each cell.
    cell : str
        What begins a cell.
    """
    return "".join(cell.join(["<tr>", *map(html.escape, row)]) for row in rows)
