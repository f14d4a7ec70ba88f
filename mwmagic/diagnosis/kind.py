"""What kind of failure an exit is, which decides what the gang does next."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from typing import TYPE_CHECKING

from mwmagic.frameworks.patterns import collected, either
from mwmagic.gang import FailureKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .exit import Exit

__all__ = ["blamed", "is_consequence", "kind"]

PYTHON_ERRORS = ("BrokenPipeError", "ConnectionRefusedError", "ConnectionResetError")
"""Python's own errors with the text of a consequence: they come from the user's connections."""

PERMANENT = ("SyntaxError", "IndentationError", "TabError", "ImportError", "ModuleNotFoundError")
"""Exceptions that would be raised again by the next attempt."""


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
    """Return the patterns with which errors name responsible tasks, and responsible ranks."""
    tasks = collected(lambda one: one.blames)
    ranks = collected(lambda one: one.blames_ranks)
    return [re.compile(text, re.MULTILINE) for text in tasks], [re.compile(text) for text in ranks]


def _texts(end: Exit) -> tuple[str, ...]:
    """Return the last output of a task: its exceptions, or what its native code printed."""
    return end.raised or (end.tail,)


def is_consequence(end: Exit) -> bool:
    """Return whether an exit only shows that another task is gone."""
    if end.unknown or end.code == 0:
        return False
    # A task that has reported its exception may be killed before it exits.
    if end.signal not in (None, 6) and not end.report:
        return False
    if end.types.intersection(PYTHON_ERRORS):
        return False
    texts = _texts(end)
    return any(map(_consequence().search, texts)) and not any(map(_mismatch().search, texts))


def kind(end: Exit) -> FailureKind:
    """Return what kind of failure an exit is."""
    if end.ended:
        return FailureKind.CONSEQUENCE
    if end.signal is None and _port_taken().search(end.tail):
        return FailureKind.PORT
    if end.types.intersection(PERMANENT):
        return FailureKind.PERMANENT
    if end.unknown and not end.lost:
        return FailureKind.PERMANENT
    return FailureKind.CONSEQUENCE if is_consequence(end) else FailureKind.PRIMARY


def _named(end: Exit) -> set[str]:
    """Return the tasks that an exit's output blames."""
    text = "\n".join(_texts(end))
    tasks, ranks = _blames()
    named = {f"{job}:{index}" for one in tasks for job, index in one.findall(text)}
    listed = [found for one in ranks for found in one.findall(text)]
    return named | {f"worker:{rank}" for found in listed for rank in found.split()}


def blamed(consequences: Sequence[Exit], leader: str) -> str | None:
    """Return the task that failures blame, unless it is one of those that failed."""
    names = {end.task for end in consequences}
    votes = Counter(name for end in consequences for name in sorted(_named(end) - names))
    if votes:
        return votes.most_common(1)[0][0]
    if leader not in names and any(
        _leader().search(text) for end in consequences for text in _texts(end)
    ):
        return leader
    return None
