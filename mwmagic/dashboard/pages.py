"""The pages that show a dashboard, and how much each of them has received."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["NOTHING_OPEN", "Cursor", "Opened", "Pages"]

PACKET_CHARACTERS = 24_000
"""Maximum size of a packet."""

WINDOW_CHARACTERS = 6 * PACKET_CHARACTERS
"""How much may be in flight to pages that have not answered yet: the backpressure window."""

LEAST_CHARACTERS = 4000
"""Minimum room for a packet, and all that a page gets while it does not answer."""

QUESTION_SECONDS = 1.0
"""Time between two questions while little is being sent."""

SILENCE_SECONDS = 1.0
"""How long a question waits for the slowest page."""

UNANSWERED_LIMIT = 900
"""How many questions a page may leave unanswered before it counts as closed.

While a cell blocks, kernels without subshells receive nothing from the pages,
which still receive everything.
"""


class Cursor(NamedTuple):
    """The numbers of the first text, point and state that a page lacks."""

    text: int = 0
    point: int = 0
    state: int = 0


class Opened(NamedTuple):
    """What a page shows of many tasks: all of some hosts', and single ones, by index."""

    hosts: frozenset[int]
    tasks: frozenset[int]


NOTHING_OPEN = Opened(frozenset(), frozenset())


@dataclass
class _Page:
    position: Cursor
    opened: Opened = NOTHING_OPEN
    waiting: bool = False
    unanswered: int = 0


class Pages:
    """The pages that have sent a message.

    Each packet goes to all of them. Some packets carry a question, which the pages
    answer; not all do, because an answer costs more than a small packet. Until every
    page has answered, or the question has timed out, a limited amount is sent.
    """

    def __init__(self) -> None:
        self._pages: dict[str, _Page] = {}
        self._question = 0
        self._asked = 0.0
        self._goal = Cursor()
        self._unanswered = 0

    def heard(
        self, name: str, position: Cursor, question: int = 0, opened: Opened = NOTHING_OPEN
    ) -> None:
        """Record the position that a page reports, and what it shows; add the page if it is new.

        A page that answers the current question has everything up to its goal, and
        what was sent since is on its way; any other message means that something was
        lost. Pages that left a question unanswered are no longer waited for: they are
        closed, or so busy that they must ask again.
        """
        page = self._pages.get(name)
        whole = all(has >= wanted for has, wanted in zip(position, self._goal, strict=True))
        if page is not None and question == self._question and whole:
            position = page.position
        answering = {other: page for other, page in self._pages.items() if not page.unanswered}
        self._pages = {**answering, name: _Page(position, opened)}

    def restart(self) -> None:
        """Start again at position 0: the pages show another run."""
        self._goal = Cursor()
        for page in self._pages.values():
            page.position = Cursor()

    def room(self, time: float) -> int:
        """Return how many characters may be sent now."""
        if not self._pages:
            return 0
        if not self._waiting:
            return PACKET_CHARACTERS
        if time - self._asked > SILENCE_SECONDS:
            return LEAST_CHARACTERS
        left = WINDOW_CHARACTERS - self._unanswered
        return min(left, PACKET_CHARACTERS) if left >= LEAST_CHARACTERS else 0

    @property
    def known(self) -> bool:
        """Whether there is a page to send anything to."""
        return bool(self._pages)

    @property
    def _waiting(self) -> bool:
        return any(page.waiting for page in self._pages.values())

    @property
    def opened(self) -> Opened:
        """What any of the pages shows."""
        opened = [NOTHING_OPEN, *(page.opened for page in self._pages.values())]
        return Opened(*(frozenset().union(*each) for each in zip(*opened, strict=True)))

    def position(self) -> Cursor:
        """Return the position of the page that is furthest behind."""
        positions = (page.position for page in self._pages.values())
        return Cursor(*map(min, zip(*positions, strict=True)))

    def _due(self, time: float) -> bool:
        """Return whether it is time for a question."""
        since = time - self._asked
        if self._waiting:
            return since > SILENCE_SECONDS
        return since > QUESTION_SECONDS or self._unanswered > WINDOW_CHARACTERS // 2

    def send(self, position: Cursor, size: int, time: float) -> int:
        """Record that a packet is sent that takes every page to `position`."""
        self._unanswered += size
        for page in self._pages.values():
            page.position = position
        if not self._due(time):
            return 0
        self._question += 1
        self._asked, self._goal, self._unanswered = time, position, size
        for name, page in list(self._pages.items()):
            page.unanswered += page.waiting
            page.waiting = True
            if page.unanswered > UNANSWERED_LIMIT:
                del self._pages[name]
        return self._question
