# ruff: noqa: ANN401 - TensorFlow has no annotations
"""The variables and the collective keys of multi-worker strategies, noted as they are made.

The variables' numbers are the same on every task that runs the same code, so that a variable can
be found on all of them.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from functools import wraps
from itertools import count
from typing import TYPE_CHECKING, Any

from mwmagic.hooks.imports import after_import

from .private import KEYS, VARIABLES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

__all__ = [
    "forget",
    "renumber",
    "track",
    "tracked_keys",
    "tracked_variables",
    "tracks",
]


@dataclass
class _Tracked:
    """What has been made and is still in use."""

    numbers: Iterator[int] = field(default_factory=count)
    variables: dict[int, weakref.ref[Any]] = field(default_factory=dict)
    keys: list[weakref.ref[Any]] = field(default_factory=list)

    def note(self, variable: Any) -> None:
        """Note a variable."""
        self.variables[next(self.numbers)] = weakref.ref(variable)

    def note_keys(self, keys: Any) -> None:
        """Note a strategy's keys."""
        self.keys.append(weakref.ref(keys))


_TRACKED: list[_Tracked] = []


def tracks() -> bool:
    """Return whether this process notes what strategies make."""
    return bool(_TRACKED)


def track() -> None:
    """Note what strategies make from now on; it imports nothing."""
    if _TRACKED:
        return
    found = _Tracked()
    _TRACKED.append(found)
    after_import(VARIABLES[0], lambda module: _follow(module, VARIABLES[1], found.note))
    after_import(KEYS[0], lambda module: _follow(module, KEYS[1], found.note_keys))


def forget() -> None:
    """Note nothing any more, as TensorFlow does not have what it is noted for."""
    _TRACKED.clear()


def _follow(module: ModuleType, name: str, note: Any) -> None:
    """Have a class call `note` with each instance; a TensorFlow without that class has none."""
    cls = getattr(module, name, None)
    if cls is None:
        return
    original = cls.__init__

    @wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807 - it takes its place
        original(self, *args, **kwargs)
        note(self)

    cls.__init__ = __init__


def tracked_variables() -> dict[int, Any]:
    """Return the variables of all multi-worker strategies by their numbers."""
    if not _TRACKED:
        return {}
    alive = {number: one() for number, one in list(_TRACKED[0].variables.items())}
    for number, one in alive.items():
        if one is None:
            _TRACKED[0].variables.pop(number, None)
    return {number: one for number, one in alive.items() if one is not None}


def tracked_keys() -> list[Any]:
    """Return the collective keys of all strategies."""
    found = [one() for one in _TRACKED[0].keys] if _TRACKED else []
    return [one for one in found if one is not None]


def renumber(start: int) -> None:
    """Go on with a number, so that all tasks go on alike after one of them stopped between two."""
    if _TRACKED:
        _TRACKED[0].numbers = count(start)
