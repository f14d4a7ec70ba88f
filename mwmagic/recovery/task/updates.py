# ruff: noqa: ANN401, SLF001 - TensorFlow has no annotations; Keras's variables are private
"""Makes each update of the weights whole, and counts it, in sessions that outlive an error.

If one task stops, the others are freed from the collective in which they wait for it. The
executor of a graph then drops all operations that have not begun. So here

- a collective begins when all state that was assigned before has its new value, and
- the update of the weights begins when all gradients are reduced,

by edges in the graph. While weights are updated nothing can fail that waits for a peer. Two
counters, in the graph too, tell whether an update was whole nevertheless. A third part is a copy
of the small state that advances early, such as moving statistics, seeds and metrics, as it was
when the step began.
"""

from __future__ import annotations

import weakref
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from mwmagic.hooks import spans_workers

from .private import has_effects, plain_variable
from .strategies import tracked_variables, tracks

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "COPY_BYTES",
    "Counters",
    "committed",
    "count_from",
    "counters",
    "enter",
    "is_local",
    "is_mean",
    "know_optimizers",
    "leave",
    "note_mean",
    "one_step",
    "order_collectives",
    "roll_back",
    "settle",
    "step_in_loops",
    "updating",
    "within_step",
]

COPY_BYTES = 4_194_304
"""The largest variable of which a copy is kept, as its copying costs time in each step."""

_ENTERED: ContextVar[bool] = ContextVar("entered", default=False)


@dataclass(frozen=True)
class Counters:
    """How far this process has come; see `mwmagic.recovery.plan.Standing`."""

    begun: Any
    done: Any
    before: Any
    entered: Any
    left: Any
    usual: Any
    group: Any

    def read(self) -> dict[str, int]:
        """Return their values."""
        return {name: int(one.numpy()) for name, one in vars(self).items()}


_COUNTERS: list[Counters] = []


def counters() -> Counters | None:
    """Return the counters, once a step of a multi-worker strategy has begun."""
    return _COUNTERS[0] if _COUNTERS else None


def _counters() -> Counters:
    if not _COUNTERS:
        _COUNTERS.append(Counters(*(plain_variable(0, tf.int64) for _ in range(7))))
    return _COUNTERS[0]


_BEFORE: list[int] = [0]
"""How many updates were made in earlier processes whose backup was restored in this one."""


def committed() -> int | None:
    """Return how many whole updates of weights there have been; None where nothing counts them."""
    if not tracks():
        return None
    count = counters()
    return _BEFORE[0] + (0 if count is None else int(count.done.numpy()))


def count_from(done: int) -> None:
    """Take the weights as those after a number of whole updates.

    The counters stay as they are, because a recovery compares them between the tasks.
    """
    now = committed()
    if now is not None:
        _BEFORE[0] += done - now


# What operations wait for.

_SEEN: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
"""How many operations a graph had when it was last asked for those that change something."""


def _so_far() -> list[Any]:
    """Return the operations with effects that this graph has got since the last time."""
    if tf.executing_eagerly():
        return []  # one follows the other
    graph = tf.compat.v1.get_default_graph()
    operations = graph.get_operations()
    seen, _SEEN[graph] = _SEEN.get(graph, 0), len(operations)
    return [one for one in operations[seen:] if has_effects(one)]


def _flat(tensors: Any) -> list[Any]:
    """Return what operations can wait for, of a nest of tensors."""
    leaves = tf.nest.flatten(tensors, expand_composites=True)
    return [] if tf.executing_eagerly() else [one for one in leaves if tf.is_tensor(one)]


# A step.


def is_local(variable: Any) -> bool:
    """Return whether each task has a value of its own, like a metric or a moving mean."""
    if variable.synchronization == tf.VariableSynchronization.ON_READ:
        return True
    if getattr(_part(variable), SHARED, False):
        return False
    return not variable.trainable and variable.aggregation == tf.VariableAggregation.NONE


SHARED = "_mwmagic_shared"
"""The attribute of an optimizer's variable, which nothing else distinguishes from a task's own."""


def know_optimizers(module: Any) -> None:
    """Note the variables of Keras's optimizers as they are made."""
    cls = module.optimizers.Optimizer
    for name in ("add_variable", "add_variable_from_reference"):
        if hasattr(cls, name):
            setattr(cls, name, _noting_shared(getattr(cls, name)))


def _noting_shared(original: Any) -> Any:
    @wraps(original)
    def add(*args: Any, **kwargs: Any) -> Any:
        variable = original(*args, **kwargs)
        value = getattr(variable, "_value", variable)
        if isinstance(value, tf.distribute.DistributedValues):
            setattr(_part(value), SHARED, True)
        return variable

    return add


MEAN = "_mwmagic_mean"
"""The attribute of a variable that steps average over the workers."""


def note_mean(variable: Any) -> None:
    """Note that steps average a variable of Keras over the workers."""
    if tracks():
        setattr(_part(variable._value), MEAN, True)


def is_mean(variable: Any) -> bool:
    """Return whether steps average a strategy's variable over the workers."""
    return getattr(_part(variable), MEAN, False)


def _part(variable: Any) -> Any:
    """Return this task's part of a strategy's variable."""
    return variable.values[0]


COPY = "_mwmagic_copy"
"""The attribute of a variable that holds its copy."""


def _copy(part: Any) -> Any:
    """Return the variable that holds the copy of another."""
    if not hasattr(part, COPY):
        with tf.init_scope():
            setattr(part, COPY, plain_variable(tf.zeros(part.shape, part.dtype)))
    return getattr(part, COPY)


def _copied(strategy: Any) -> dict[int, Any]:
    """Return this task's parts of the small variables of which each task has its own value."""
    return {
        number: _part(one)
        for number, one in tracked_variables().items()
        if one.distribute_strategy is strategy and is_local(one) and _bytes(one) <= COPY_BYTES
    }


_GROUPS: list[tuple[int, ...]] = []
"""The numbers of the variables that steps copy; a counter says which group the last step had."""


def _group(numbers: tuple[int, ...]) -> int:
    if numbers not in _GROUPS:
        _GROUPS.append(numbers)
    return _GROUPS.index(numbers)


def _bytes(variable: Any) -> int:
    return variable.shape.num_elements() * variable.dtype.size  # type: ignore[no-any-return]


def enter(strategy: Any, data: Any) -> None:
    """Begin a step on `data`, in the graph or at once: copy the small state that advances early."""
    if not tracks():
        return
    count, parts = _counters(), _copied(strategy)
    with tf.control_dependencies([*_so_far(), *_flat(data)]):
        copies = [_assign(_copy(part), part.read_value()) for part in parts.values()]
        copies.append(_assign(count.group, tf.constant(_group(tuple(parts)), tf.int64)))
        copies.append(_assign(count.before, count.done.read_value()))
    with _after(copies):
        _assign(count.entered, count.entered.read_value() + 1)


def leave() -> None:
    """End the step that has begun last."""
    if not tracks():
        return
    count = _counters()
    with tf.control_dependencies(_so_far()):
        usual = _assign(count.usual, count.done.read_value() - count.before.read_value())
    with _after([usual]):
        _assign(count.left, count.entered.read_value())


def _assign(variable: Any, value: Any) -> Any:
    """Assign; return the operation, or None if that is done."""
    return variable.assign(value, read_value=False)


def _after(operations: list[Any]) -> Any:
    """Return a context whose operations run after others; done ones are None."""
    return tf.control_dependencies([one for one in operations if one is not None])


@contextmanager
def one_step(strategy: Any, data: Any) -> Iterator[None]:
    """Make what follows a step, unless it is part of one."""
    if _ENTERED.get() or not tracks() or not spans_workers(strategy):
        yield
        return
    token = _ENTERED.set(True)
    try:
        enter(strategy, data)
        yield
        leave()
    finally:
        _ENTERED.reset(token)


@contextmanager
def within_step() -> Iterator[None]:
    """Leave it to the caller where what follows enters steps, and where it leaves them."""
    token = _ENTERED.set(True)
    try:
        yield
    finally:
        _ENTERED.reset(token)


def step_in_loops(module: Any) -> None:
    """Make each call of a multi-worker strategy's ``run`` a step, also in loops of the user's."""
    cls = module.distribute.MultiWorkerMirroredStrategy
    original = cls.run

    @wraps(original)
    def run(self: Any, fn: Any, args: Any = (), kwargs: Any = None, options: Any = None) -> Any:
        with one_step(self, (args, kwargs)):
            return original(self, fn, args, kwargs, options)

    cls.run = run


def order_collectives(module: Any) -> None:
    """Make each collective of a replica begin after all that has been assigned so far."""
    cls = module.distribute.ReplicaContext
    for name in ("all_reduce", "all_gather"):
        setattr(cls, name, _ordered(getattr(cls, name)))


def _ordered(original: Any) -> Any:
    @wraps(original)
    def ordered(*args: Any, **kwargs: Any) -> Any:
        with tf.control_dependencies(_so_far()):
            return original(*args, **kwargs)

    return ordered


# An update.


@contextmanager
def updating(grads: Any) -> Iterator[None]:
    """Update weights after all gradients are reduced, and count that."""
    if not tracks():
        yield
        return
    count = _counters()
    with tf.control_dependencies([*_so_far(), *_flat([g for g in grads if g is not None])]):
        begun = _assign(count.begun, count.done.read_value() + 1)
    with _after([begun]):
        yield
    with tf.control_dependencies(_so_far()):
        _assign(count.done, count.begun.read_value())


# A recovery.


def settle(done: int | None = None) -> None:
    """Leave the step that an error ended, and take a number of updates as done."""
    count = counters()
    if count is None:
        return
    count.left.assign(count.entered)
    if done is not None:
        for one in (count.begun, count.done, count.before):
            one.assign(done)


def roll_back(done: int) -> bool:
    """Give small state the values from before a step that has updated no weights."""
    count = counters()
    if count is None:
        return False
    now = count.read()
    if not now["begun"] or now["entered"] == now["left"] or now["before"] != done:
        return False
    alive = tracked_variables()
    for number in _GROUPS[now["group"]]:
        if number in alive:
            part = _part(alive[number])
            part.assign(getattr(part, COPY))
    return True
