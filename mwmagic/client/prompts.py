"""Input prompts of tasks, shown to the user, one task at a time."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING

from mwmagic.errors import BadArguments, NoRun, SupervisorError
from mwmagic.logs.terminal import plain
from mwmagic.words.live import debugged_words, ranks_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from mwmagic.model.status import Question

__all__ = ["InputPrompts"]


DEBUGGED_SECONDS = 1.0
"""How long the others wait after a debugger's command for its next prompt: one task at a time."""


class InputPrompts:
    """Passes on what tasks ask, and what is typed."""

    def __init__(
        self,
        say: Callable[[str], None],
        reply: Callable[[str, str | None], None],
        printed: Callable[[str], Iterable[str]] = lambda _: (),
    ) -> None:
        self._say = say
        self._reply = reply
        self._printed = printed
        self._order = _PromptOrder()

    def ask(self, asks: Mapping[str, Question]) -> str | None:
        """Ask what the next task asks, and return that task; None if none is due yet."""
        task = self._order.next(asks)
        if task is None:
            return None
        others = self._order.waiting(task, asks)
        if others:
            self._say(f"─ {debugged_words(others, task)}")
        if asks[task].debugger:
            for line in self._printed(task):
                self._say(f"[{ranks_words([task])}] {line}")
        try:
            text: str | None = input(f"[{ranks_words([task])}] {plain(asks[task].prompt)}")
        except EOFError:  # Ctrl-D
            text = None
        try:
            self._pass_on(task, text)
        except BadArguments as error:  # it is too long, and so it is asked again
            self._say(f"─ {error}")
            return None
        self._order.answered(task, asks[task])
        return task

    def refuse(self, asks: Mapping[str, Question]) -> None:
        """Pass on to all tasks that ask that no answer will come."""
        for task in asks:
            self._pass_on(task, None)

    def _pass_on(self, task: str, text: str | None) -> None:
        """Reply to a task, which may have ended since it asked; the wait then says why."""
        with suppress(NoRun, SupervisorError):
            self._reply(task, text)


class _PromptOrder:
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
        """Return the tasks that wait for one in the debugger, and have not been named yet."""
        others = [one for one in asks if one != task and one not in self._told]
        self._told.update(others)
        return others if asks[task].debugger else []

    def answered(self, task: str, question: Question) -> None:
        """Note that a question was answered."""
        self._last = task if question.debugger else None
        self._until = time.monotonic() + DEBUGGED_SECONDS
