"""Tells what happens to a live cell as it happens: lines, questions, exceptions and values."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mwmagic.model.live import What
from mwmagic.words.live import raised_words, ranks_words, waits_words

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mwmagic.model.live import Answer, Raised

    from .live import Live, LiveCell

__all__ = ["Telling", "Voice"]

NOTICE_SECONDS = 0.25
"""How long an exception waits for the same of other tasks before it is told."""


@dataclass(frozen=True)
class Voice:
    """How a notebook or a terminal tells its user something.

    Parameters
    ----------
    say : callable
        Prints a line.
    show : callable
        Displays a value, by MIME type.
    ask : callable
        Asks for a line after a prompt; returns it, or None where no one can answer.
    """

    say: Callable[[str], None]
    show: Callable[[Mapping[str, Any]], None]
    ask: Callable[[str], str | None]


class Notices:
    """The exceptions that are told while other tasks still run; those of the end are not."""

    def __init__(self) -> None:
        self._waiting: dict[Raised, tuple[float, list[str]]] = {}

    def hear(self, answer: Answer, now: float) -> None:
        """Take a task's answer."""
        if answer.raised is not None:
            self._waiting.setdefault(answer.raised, (now, []))[1].append(answer.task)

    def due(self, now: float | None) -> list[tuple[Raised, list[str]]]:
        """Return what is told now, with the tasks that raised it; without a time, all."""
        due = [
            (raised, tasks)
            for raised, (since, tasks) in self._waiting.items()
            if now is None or now - since >= NOTICE_SECONDS
        ]
        for raised, _ in due:
            del self._waiting[raised]
        return due


class Telling:
    """Tells of one cell.

    Parameters
    ----------
    live : Live
        Its session.
    cell : LiveCell
        The cell.
    name : str
        Its name in tracebacks.
    voice : Voice
        How it is told.
    """

    def __init__(self, live: Live, cell: LiveCell, name: str, voice: Voice) -> None:
        self._live = live
        self._cell = cell
        self._name = name
        self._voice = voice
        self._size = len(live.cluster.tasks)
        self._notices = Notices()

    def follow(self) -> None:
        """Show what the tasks print and what happens to the cell, until it is over."""
        for news in self._live.follow(self._cell):
            self.lines()
            what, said = news or (None, {})
            if what is What.SHOW and isinstance(said["value"], dict):
                self._head([said["task"]], several=self._size > 1)
                self._voice.show(said["value"])
            if what is What.ASK:
                self._ask(said["task"], said["prompt"])
            if what is What.ANSWER:
                self._notices.hear(self._cell.answers[said["task"]], time.monotonic())
            for raised, tasks in self._notices.due(
                None if what is What.WAITS else time.monotonic()
            ):
                self._voice.say(f"─ {raised_words(tasks, raised, self._name)}")
            if what is What.WAITS:
                self._voice.say(f"─ {waits_words(said)}")
        self.lines()
        self._traces()

    def lines(self, *, every: bool = False) -> None:
        """Show the lines that are due, or every one."""
        for tasks, text in self._cell.lines(every=every):
            self._voice.say(text if self._size == 1 else f"[{ranks_words(tasks)}] {text}")

    def _ask(self, task: str, prompt: str) -> None:
        self.lines(every=True)
        self._live.reply(task, self._voice.ask(f"[{ranks_words([task])}] {prompt}"))

    def _head(self, tasks: Sequence[str], *, several: bool) -> None:
        """Name the tasks that what follows comes from, where it may come from others."""
        if several:
            self._voice.say(f"[{ranks_words(tasks)}]")

    def _traces(self) -> None:
        """Show each traceback once, with the tasks that have it."""
        groups: dict[str, list[str]] = {}
        for task, one in self._cell.ranked().items():
            if one.raised is not None:
                groups.setdefault(one.raised.trace, []).append(task)
        for trace, tasks in groups.items():
            self._voice.say(f"[{ranks_words(tasks)}] {trace.rstrip()}")

    def values(self) -> None:
        """Display the values of the last expression, equal ones once."""
        groups: list[tuple[Mapping[str, Any], list[str]]] = []
        for task, answer in self._cell.ranked().items():
            same = next((tasks for value, tasks in groups if value == answer.value), None)
            if same is not None:
                same.append(task)
            else:
                groups.append((answer.value, [task]))
        for value, tasks in groups:
            if value:
                self._head(tasks, several=len(groups) > 1)
                self._voice.show(value)
