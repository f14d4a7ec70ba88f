# ruff: noqa: ANN401 - TensorFlow has no annotations
"""The multi-worker strategies that a program makes: what each has, and how they are kept apart.

Their variables and collective keys are noted as they are made. The variables' numbers are the same
on every task that runs the same code, so that a variable can be found on all of them.

A strategy replaces all collectives of its process. A task that continues at once may ask for those
that another task is about to replace, which then forgets it: both wait forever, or a step gets
another's tensors. And each strategy numbers its collectives like the one before it, so that two
cannot be used in turn.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from functools import wraps
from itertools import count
from typing import TYPE_CHECKING, Any

from mwmagic.hooks import after_import

from .private import CONTEXT, KEYS, VARIABLES, first_group, number_groups, server_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

__all__ = [
    "forget",
    "keep_apart",
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
    """Continue with a number, so that all count alike after a task stopped between two."""
    if _TRACKED:
        _TRACKED[0].numbers = count(start)


# Several strategies, one after another.

STRATEGY_KEYS = 10
"""How many numbers each strategy has for these groups; it uses two."""


def keep_apart() -> None:
    """Have tasks meet after they made another strategy, and tell its collectives from the others'.

    Call it before the user's code runs. It imports nothing. Live cells meet over a line of their
    own instead (`mwmagic.recovery.task.collectives`), since nothing frees a task that waits here.
    """
    after_import(CONTEXT, _meet)


def _meet(module: ModuleType) -> None:
    original = module.Context.enable_collective_ops

    @wraps(original)
    def enable_collective_ops(self: Any, *args: Any, **options: Any) -> None:
        replaces = server_of(self) is not None
        original(self, *args, **options)
        start = first_group()
        number_groups(start + STRATEGY_KEYS)  # a strategy looks this up before it comes here
        if replaces and self.coordination_service is not None and not tracks():
            _await_others(self, f"mwmagic/strategies/{start}")

    module.Context.enable_collective_ops = enable_collective_ops


def _await_others(context: Any, place: str) -> None:
    """Wait until all tasks with collectives have come to a place, as long as it takes."""
    from mwmagic.model.live import PARTNERS

    server = server_of(context)
    context.set_config_key_value(f"{place}/{server.job_name}/{server.task_index}", "")
    for job in server.cluster.job:
        for index in job.tasks if f"{job.name}:" in PARTNERS else ():
            context.get_config_key_value(f"{place}/{job.name}/{index}")  # once it is there
