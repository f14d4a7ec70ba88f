"""A scaling study in a notebook: a sentence, the speed-up beside the ideal line, and a table."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from mwmagic.experiments.series import Key, Point
from mwmagic.model.values import encodable
from mwmagic.words.sweep import scaling_cells, scaling_lines, scaling_notes, scaling_words

from .runs import text_cell, wide
from .static import UNTYPESET, Picture, image

if TYPE_CHECKING:
    from mwmagic.experiments.scaling import Study

__all__ = ["NotebookScaling"]

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
        parts = [f"<b>{html.escape(scaling_words(self.found))}</b>", _picture(self.found)]
        parts += [
            wide(heads, body),
            *(f"<p>{html.escape(one)}</p>" for one in scaling_notes(self.found)),
        ]
        return encodable(f'<div class="{UNTYPESET}">{"".join(parts)}</div>')


def _picture(found: Study) -> str:
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
