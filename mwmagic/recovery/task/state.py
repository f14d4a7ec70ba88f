# ruff: noqa: ANN401 - TensorFlow has no annotations
"""The state of this task's training: asked for, compared with that of others, and given back.

The counters say how far it has come (`standing`). It consists of the variables of its strategies:
`compare` digests them after it has undone what a step did that updated no weights, and `align`
gives all tasks the values of one, or the mean of all.
"""

from __future__ import annotations

import sys
from hashlib import blake2b
from typing import TYPE_CHECKING, Any
from zlib import crc32

from . import strategies

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["align", "compare", "settle", "standing"]


def standing() -> dict[str, int]:
    """Return how far training has come, as `mwmagic.recovery.plan.Standing` has it."""
    from . import updates

    count = updates.counters()
    return {} if count is None else count.read()


def settle() -> None:
    """Leave a step that ended in an error which the cell did not let pass."""
    updates = sys.modules.get("mwmagic.recovery.task.updates")
    if updates is not None:
        updates.settle()


def compare(done: int) -> dict[str, dict[str, str]]:
    """Undo what a step has done that updated no weights, and digest the variables."""
    from . import updates

    updates.roll_back(done)
    found: dict[str, dict[str, str]] = {"shared": {}, "means": {}}
    for name, variable in _variables().items():
        kind = "means" if updates.is_mean(variable) else "shared"
        if kind == "means" or not updates.is_local(variable):
            found[kind][name] = _digest(variable.values[0].numpy())
    return found


def _variables() -> dict[str, Any]:
    """Return the variables of strategies by a name that is the same on every task."""
    named = {}
    for number, one in strategies.tracked_variables().items():
        if one.dtype.is_floating or one.dtype.is_integer or one.dtype.is_bool:
            kind = crc32(f"{one.name} {one.shape} {one.dtype.name}".encode())
            named[f"{number}.{kind:x}"] = one
    return named


def _digest(array: Any) -> str:
    return blake2b(array.tobytes(), digest_size=8).hexdigest()


def align(own: bool, done: int, names: Iterable[str], averaged: Iterable[str]) -> None:
    """Take the values of one task, and the means of all tasks' values; call it on all of them."""
    import tensorflow as tf

    from . import updates

    known = _variables()
    given, means = [known[name] for name in names], [known[name] for name in averaged]
    _add(given, lambda value: value if own else tf.zeros_like(value))
    _add(means, lambda value: value)
    for one in means:
        one.values[0].assign(one.values[0] / one.distribute_strategy.num_replicas_in_sync)
    updates.settle(done)


def _add(variables: list[Any], part: Callable[[Any], Any]) -> None:
    """Give variables the sum of what each task contributes."""
    import tensorflow as tf

    from mwmagic.hooks import added

    for strategy in {id(one): one for one in (v.distribute_strategy for v in variables)}.values():
        own = [v.values[0] for v in variables if v.distribute_strategy is strategy]
        sums = added(strategy, [part(one.read_value()) for one in own])
        for one, value in zip(own, sums, strict=True):
            one.assign(tf.cast(value, one.dtype))
