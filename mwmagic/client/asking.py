"""Asks the user what tasks ask, one task at a time."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from mwmagic.errors import BadArguments, NoRun, SupervisorError
from mwmagic.logs.terminal import plain
from mwmagic.words.live import debugged_words, ranks_words

from .turns import Turns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from mwmagic.model.status import Question

__all__ = ["Asking"]


class Asking:
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
        self._turns = Turns()

    def ask(self, asks: Mapping[str, Question]) -> str | None:
        """Ask what the next task asks, and return that task; None if it is not its turn yet."""
        task = self._turns.next(asks)
        if task is None:
            return None
        others = self._turns.waiting(task, asks)
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
        self._turns.answered(task, asks[task])
        return task

    def refuse(self, asks: Mapping[str, Question]) -> None:
        """Pass on to all tasks that ask that no answer will come."""
        for task in asks:
            self._pass_on(task, None)

    def _pass_on(self, task: str, text: str | None) -> None:
        """Reply to a task, which may have ended since it asked; the wait then says why."""
        with suppress(NoRun, SupervisorError):
            self._reply(task, text)
