"""Whose question is answered next, where several tasks ask at the same time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mwmagic.model.status import Question

__all__ = ["Turns"]

DEBUGGED_SECONDS = 1.0
"""How long the others wait after a debugger's command for its next prompt: one task at a time."""


class Turns:
    """Chooses the task to answer: the one in the debugger until it goes on, then the next."""

    def __init__(self) -> None:
        self._last: str | None = None
        self._until = 0.0
        self._told: set[str] = set()

    def next(self, asks: Mapping[str, Question]) -> str | None:
        """Return the task whose question is answered next; None if that is not known yet."""
        if self._last in asks:
            return self._last
        if self._last is not None and time.monotonic() < self._until:
            return None
        self._told.clear()
        return next(iter(asks), None)

    def waiting(self, task: str, asks: Mapping[str, Question]) -> list[str]:
        """Return the tasks that wait for one in the debugger, and have not been told to yet."""
        others = [one for one in asks if one != task and one not in self._told]
        self._told.update(others)
        return others if asks[task].debugger else []

    def answered(self, task: str, question: Question) -> None:
        """Note that a question was answered."""
        self._last = task if question.debugger else None
        self._until = time.monotonic() + DEBUGGED_SECONDS
