"""Figures that a run's programs showed: the last few, as a page can show them."""

from __future__ import annotations

import base64
import hashlib
import html
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mwmagic.record import inside
from mwmagic.words.live import ranks_words

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from mwmagic.record import RunPaths

__all__ = ["Figure", "last_figures", "pictures"]

FIGURES_SHOWN_LIMIT = 4
"""How many are shown: the last ones. The record has more."""

FIGURE_BYTES = 250_000
"""The largest that is shown; base64 adds a third, and Jupyter forwards a megabyte a second."""

_NAME = re.compile(r"(\w+)-(\d+)\.figure-(\d+)\.png")

_BEGIN, _END = b"\x89PNG\r\n\x1a\n", b"IEND\xaeB\x60\x82"
"""The first and the last bytes of a whole PNG."""


@dataclass
class Figure:
    """A figure, and the tasks that showed it."""

    key: str
    """The same for the same picture."""
    number: int
    """Its number among those of its first task."""
    source: str
    """A data URL; empty if the picture is too large."""
    place: str
    """Its path, from the record's folder on."""
    tasks: list[str] = field(default_factory=list)

    @property
    def caption(self) -> str:
        """What stands below it."""
        ranks = ranks_words(self.tasks)
        name = self.tasks[0] if len(self.tasks) == 1 else f"[{ranks}]"
        large = "" if self.source else f", too large to show here: {self.place}"
        return f"{name} · figure {self.number}{large}"


def last_figures(paths: RunPaths) -> list[Figure]:
    """Return the last figures of a run, oldest first: each once, however many tasks showed it.

    What is still being written is left out.
    """
    found: dict[str, Figure] = {}
    for path in reversed(paths.figures()):
        name = _NAME.fullmatch(path.name)
        figure = _read(path, int(name[3])) if name else None
        if name is None or figure is None:
            continue
        if figure.key not in found and len(found) == FIGURES_SHOWN_LIMIT:
            break
        # It stands where it was first shown: which task is ahead depends on the machines.
        found[figure.key] = figure = found.pop(figure.key, figure)
        task = f"{name[1]}:{name[2]}"
        if task not in figure.tasks:
            figure.tasks.append(task)
    return [*reversed(found.values())]


def _read(path: Path, number: int) -> Figure | None:
    """Read a figure; None if it is no whole picture. A program may write what it likes there."""
    size = path.stat().st_size
    if size > FIGURE_BYTES:
        return Figure(f"{path.name} {size}", number, "", inside(str(path)))
    data = path.read_bytes()
    if not (data.startswith(_BEGIN) and data.endswith(_END)):
        return None
    source = f"data:image/png;base64,{base64.b64encode(data).decode()}"
    return Figure(hashlib.sha256(data).hexdigest(), number, source, inside(str(path)))


def pictures(figures: Sequence[Figure]) -> str:
    """Return figures as HTML for a saved notebook."""
    return "".join(map(_picture, figures))


def _picture(figure: Figure) -> str:
    words = html.escape(figure.caption)
    image = f'<img alt="{words}" src="{figure.source}" style="max-width:100%"><br>'
    return f"<div>{image if figure.source else ''}{words}</div>"
