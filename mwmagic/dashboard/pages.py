"""Which pages show a dashboard, and how far each of them is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = ["Pages", "Position"]

PATIENCE = 1.0
"""Seconds that a frame waits for the slowest page."""

BLIND = 900
"""Frames sent on to a page that does not answer.

While a cell blocks, kernels without subshells hear no page; the pages see
everything all the same. A page that is gone gets no more than this.
"""


class Position(NamedTuple):
    """The numbers of the first line, point and state that a page lacks."""

    line: int = 0
    point: int = 0
    state: int = 0


@dataclass
class _Page:
    position: Position
    heard: float
    waiting: bool = False
    blind: int = field(default=0)


class Pages:
    """The pages that were heard of.

    A frame goes to all of them at once; the next one waits until each has
    answered, or for a while.
    """

    def __init__(self) -> None:
        self._pages: dict[str, _Page] = {}

    def heard(self, name: str, position: Position, time: float) -> None:
        """Note how far a page says that it is; a new one is added.

        Those that let a frame go by unanswered meanwhile are not waited for any
        more: closed, or so busy that they must ask again.
        """
        answering = {other: page for other, page in self._pages.items() if not page.blind}
        self._pages = {**answering, name: _Page(position, time)}

    def restart(self) -> None:
        """Note that all numbers begin again."""
        for page in self._pages.values():
            page.position = Position()

    def ready(self, time: float) -> bool:
        """Whether a frame may be sent now."""
        waited = [page for page in self._pages.values() if page.waiting]
        return bool(self._pages) and all(time - page.heard > PATIENCE for page in waited)

    @property
    def known(self) -> bool:
        """Whether any page is to be told anything."""
        return bool(self._pages)

    @property
    def patient(self) -> bool:
        """Whether every page answered the last frame."""
        return not any(page.waiting for page in self._pages.values())

    def position(self) -> Position:
        """Return what the page that is furthest behind lacks."""
        positions = (page.position for page in self._pages.values())
        return Position(*map(min, zip(*positions, strict=True)))

    def sent(self, position: Position, time: float) -> None:
        """Note that a frame was sent which takes every page to `position`."""
        for name, page in list(self._pages.items()):
            page.blind += page.waiting
            page.waiting, page.heard, page.position = True, time, position
            if page.blind > BLIND:
                del self._pages[name]
