"""Which pages show a dashboard, and how far each of them is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = ["Pages", "Position"]

FRAME_CHARACTERS = 24_000
"""Characters in a frame at the most."""

WINDOW_CHARACTERS = 6 * FRAME_CHARACTERS
"""Characters that may be on their way to pages which have not answered yet."""

LEAST_CHARACTERS = 4000
"""Characters that a frame should have room for; a page that does not answer gets no more."""

QUESTION_SECONDS = 1.0
"""Seconds between two questions while little is sent."""

SILENCE_SECONDS = 1.0
"""Seconds that a question waits for the slowest page."""

BLIND_QUESTIONS = 900
"""Questions to a page that does not answer.

While a cell blocks, kernels without subshells hear no page; the pages see
everything all the same. A page that is gone gets no more than this.
"""


class Position(NamedTuple):
    """The numbers of the first text, point and state that a page lacks."""

    text: int = 0
    point: int = 0
    state: int = 0


@dataclass
class _Page:
    position: Position
    waiting: bool = False
    blind: int = field(default=0)


class Pages:
    """The pages that were heard of.

    A frame goes to all of them at once. Now and then one asks them to answer:
    each answer costs more than a small frame. Until all have answered, or for a
    while, only so much more is sent.
    """

    def __init__(self) -> None:
        self._pages: dict[str, _Page] = {}
        self._question = 0
        self._asked = 0.0
        self._goal = Position()
        self._unanswered = 0

    def heard(self, name: str, position: Position, question: int = 0) -> None:
        """Note how far a page says that it is; a new one is added.

        One that answers the question has all until there, and what was sent since
        is on its way; any other word means that something was lost. Those that
        let a question go by unanswered meanwhile are not waited for any more:
        closed, or so busy that they must ask again.
        """
        page = self._pages.get(name)
        whole = all(has >= wanted for has, wanted in zip(position, self._goal, strict=True))
        if page is not None and question == self._question and whole:
            position = page.position
        answering = {other: page for other, page in self._pages.items() if not page.blind}
        self._pages = {**answering, name: _Page(position)}

    def restart(self) -> None:
        """Note that all numbers begin again."""
        self._goal = Position()
        for page in self._pages.values():
            page.position = Position()

    def room(self, time: float) -> int:
        """Return how many characters may be sent now."""
        if not self._pages:
            return 0
        if not self._waiting:
            return FRAME_CHARACTERS
        if time - self._asked > SILENCE_SECONDS:
            return LEAST_CHARACTERS
        left = WINDOW_CHARACTERS - self._unanswered
        return min(left, FRAME_CHARACTERS) if left >= LEAST_CHARACTERS else 0

    @property
    def known(self) -> bool:
        """Whether any page is to be told anything."""
        return bool(self._pages)

    @property
    def _waiting(self) -> bool:
        return any(page.waiting for page in self._pages.values())

    def position(self) -> Position:
        """Return what the page that is furthest behind lacks."""
        positions = (page.position for page in self._pages.values())
        return Position(*map(min, zip(*positions, strict=True)))

    def _due(self, time: float) -> bool:
        """Whether it is time for a question."""
        since = time - self._asked
        if self._waiting:
            return since > SILENCE_SECONDS
        return since > QUESTION_SECONDS or self._unanswered > WINDOW_CHARACTERS // 2

    def send(self, position: Position, size: int, time: float) -> int:
        """Note that a frame is sent which takes every page to `position`.

        Parameters
        ----------
        position : Position
            Where it ends.
        size : int
            Its characters.
        time : float
            Now, in seconds.

        Returns
        -------
        int
            The question's number, if the pages are to answer this frame, or else 0.
        """
        self._unanswered += size
        for page in self._pages.values():
            page.position = position
        if not self._due(time):
            return 0
        self._question += 1
        self._asked, self._goal, self._unanswered = time, position, size
        for name, page in list(self._pages.items()):
            page.blind += page.waiting
            page.waiting = True
            if page.blind > BLIND_QUESTIONS:
                del self._pages[name]
        return self._question
