"""Whose failure an exit is, which decides what the gang does next."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from typing import TYPE_CHECKING

from mwmagic.frameworks.patterns import collected, either
from mwmagic.gang import Failure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .exit import Exit

__all__ = ["blamed", "is_consequence", "kind"]

PYTHON_ERRORS = ("BrokenPipeError", "ConnectionRefusedError", "ConnectionResetError")
"""Python's own errors with such texts: those of the user's connections."""

PERMANENT = ("SyntaxError", "IndentationError", "TabError", "ImportError", "ModuleNotFoundError")
"""Exceptions of a start-up that cannot go better the next time."""


@cache
def _consequence() -> re.Pattern[str]:
    return either(lambda one: one.consequences, re.IGNORECASE)


@cache
def _mismatch() -> re.Pattern[str]:
    return either(lambda one: one.mismatches)


@cache
def _port_taken() -> re.Pattern[str]:
    return either(lambda one: one.port_taken)


@cache
def _leader() -> re.Pattern[str]:
    return either(lambda one: one.blames_leader)


@cache
def _blames() -> tuple[list[re.Pattern[str]], list[re.Pattern[str]]]:
    """Return how errors name the responsible tasks, and the responsible ranks."""
    tasks = collected(lambda one: one.blames)
    ranks = collected(lambda one: one.blames_ranks)
    return [re.compile(text, re.MULTILINE) for text in tasks], [re.compile(text) for text in ranks]


def _text(end: Exit) -> str:
    """Return what a task said last: its exception, or what its native code printed."""
    return end.raised or end.tail


def is_consequence(end: Exit) -> bool:
    """Whether an exit only shows that another task is gone."""
    if end.unknown or end.code == 0:
        return False
    # A task that has reported why it ends may be killed before it has ended.
    if end.signal not in (None, 6) and not end.report:
        return False
    if end.report and end.report.get("type") in PYTHON_ERRORS:
        return False
    text = _text(end)
    return bool(_consequence().search(text)) and not _mismatch().search(text)


def kind(end: Exit) -> Failure:
    """Return what kind of failure an exit is."""
    if end.ended:
        return Failure.CONSEQUENCE
    if end.signal is None and _port_taken().search(end.tail):
        return Failure.PORT
    if end.report and end.report.get("type") in PERMANENT:
        return Failure.PERMANENT
    if end.unknown and not end.lost:
        return Failure.PERMANENT
    return Failure.CONSEQUENCE if is_consequence(end) else Failure.PRIMARY


def _named(end: Exit) -> set[str]:
    """Return the tasks that an exit's own words hold responsible."""
    text = _text(end)
    tasks, ranks = _blames()
    named = {f"{job}:{index}" for one in tasks for job, index in one.findall(text)}
    listed = [found for one in ranks for found in one.findall(text)]
    return named | {f"worker:{rank}" for found in listed for rank in found.split()}


def blamed(hurt: Sequence[Exit], leader: str) -> str | None:
    """Return the task that the hurt ones hold responsible, if it was not hurt itself.

    Parameters
    ----------
    hurt : sequence of Exit
        Exits that are consequences.
    leader : str
        The task with the coordination service, to which failures to reach that point.
    """
    names = {end.task for end in hurt}
    votes = Counter(name for end in hurt for name in sorted(_named(end) - names))
    if votes:
        return votes.most_common(1)[0][0]
    if leader not in names and any(_leader().search(_text(end)) for end in hurt):
        return leader
    return None
