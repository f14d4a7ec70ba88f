# ruff: noqa: ANN401 - Keras and TensorFlow have no annotations
"""The training or test step that is running, and what is known about it.

Several repairs apply only inside the step that `Model.fit` or `Model.evaluate` passes to
`strategy.run`, so that a custom training loop keeps the behaviour its author has seen.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from .parts import tree

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["OWN_SIZES", "Step", "Updated", "current_step", "outside_steps", "running"]

OWN_SIZES = "_mwmagic_own_sizes"
"""The attribute of an iterator whose element spec may differ from the other workers'."""

TENSORS = (tf.Tensor, tf.RaggedTensor, tf.SparseTensor)


@dataclass
class Updated:
    """What steps have updated on each replica separately."""

    state: dict[int, Any] = field(default_factory=dict)
    """The model's floating-point state that has no aggregation, by identity."""
    metrics: set[int] = field(default_factory=set)
    """The identities of metrics' variables, and of metrics that each replica updates alike."""
    sums: tuple[int, ...] = ()
    """The identities of the variables of which a step returns the state on all replicas."""


@dataclass
class Step:
    """One replica's step, as it is traced (or run eagerly)."""

    model: Any
    alike: bool
    """Whether a shape that is known before the step is the same on every replica, because it comes
    from the dataset's element spec."""
    samples: Any
    """How many samples this replica got, or None if all replicas got equally many. In the last
    batch, some may be left without any."""
    updated: Updated
    """What this step and others have updated; the step adds to it."""
    data: Any = None
    """This replica's part of a batch."""
    divided: list[Any] = field(default_factory=list)
    """The losses that have been divided among the replicas."""
    own_terms: bool | None = None
    """Whether the gradient of a loss has been taken that the user's code computes and does not
    divide, in part at least; None if that is not known, as of eager tensors."""
    gradients: list[Any] = field(default_factory=list)
    """What tapes have given while the step is traced."""
    changes: bool = False
    compares: bool = False
    """Whether the step changes gradients before it applies them, and whether its loss compares
    samples with each other; both as far as can be seen."""
    losses: dict[int, list[Any]] = field(default_factory=dict)
    """What each layer has added to the loss, by the layer's identity."""
    open_losses: int = 0
    """How many losses are being computed; all but the first are terms of another."""
    size: int | None = None
    """How many samples each replica gets, where a graph is for that many only."""
    whole: dict[tuple[int, int], tuple[Any, Any]] = field(default_factory=dict)
    """Arguments of metrics, and what all replicas have of them, by graph and identity."""

    def __post_init__(self) -> None:
        self._shares: dict[int, Any] = {}
        self._spoiled: dict[tuple[int, int], Any] = {}
        self._state = {id(variable) for variable in self.model.non_trainable_variables}
        self._metrics = {id(v): id(m) for m in self.model.metrics for v in m.variables}

    def update(self, variable: Any, value: Any) -> Any:
        """Note that a variable is assigned to, and return what to assign.

        That is the old value where a replica without samples would update state, or a
        metric, with 0 / 0. The metric's count of such updates stays as well.
        """
        metric, state = self._metrics.get(id(variable)), self._is_state(variable)
        if metric is not None:
            self.updated.metrics.add(id(variable))
        if state and variable.aggregation == "none":
            self.updated.state[id(variable)] = variable
        if self.samples is None or not (metric or state):
            return value
        value = tf.cast(value, variable.dtype)
        bad = ~tf.math.is_finite(value) if state else self._spoils(metric, value)
        return tf.where((self.samples == 0) & bad, variable.value, value)

    def _spoils(self, metric: Any, value: Any) -> Any:
        """Return whether a metric's update, this variable's or one before it, is not finite."""
        key = _graph(), metric
        bad = self._spoiled.get(key, tf.zeros((), tf.bool))
        if value.dtype.is_floating:
            bad |= ~tf.reduce_all(tf.math.is_finite(value))
        self._spoiled[key] = bad
        return bad

    def _is_state(self, variable: Any) -> bool:
        return id(variable) in self._state and tf.as_dtype(variable.dtype).is_floating

    @property
    def weight(self) -> Any:
        """What this replica's part in a mean over the batch weighs, as a float32 scalar."""
        return tf.constant(1.0) if self.samples is None else tf.cast(self.samples, tf.float32)

    @contextmanager
    def computing_loss(self) -> Iterator[None]:
        """Mark what follows as a loss, to which other losses in it are terms."""
        self.open_losses += 1
        try:
            yield
        finally:
            self.open_losses -= 1

    def share(self) -> Any:
        """Return the part of the batch's samples that this replica got; the parts add up to 1."""
        context = tf.distribute.get_replica_context()
        if self.samples is None:
            return tf.constant(1.0 / context.num_replicas_in_sync)
        if (key := _graph()) not in self._shares:
            whole = context.all_reduce(tf.distribute.ReduceOp.SUM, self.weight)
            self._shares[key] = tf.math.divide_no_nan(self.weight, whole)
        return self._shares[key]


def _graph() -> int:
    """Identify where a tensor can be used: one made inside a branch or a loop only there."""
    return id(tf.compat.v1.get_default_graph())


_CURRENT: ContextVar[Step | None] = ContextVar("step", default=None)


def current_step() -> Step | None:
    """Return the step that this code is part of, if it is part of one."""
    return _CURRENT.get()


@contextmanager
def running(model: Any, data: Any, updated: Updated, *, specified: bool) -> Iterator[Step]:
    """Mark what follows as a replica's step on `data`."""
    alike = specified and not tf.executing_eagerly()
    size = _size(data) if alike else None
    samples = None if size is not None else _samples(data)
    step = Step(model, alike, samples, updated, data, size=size)
    token = _CURRENT.set(step)
    try:
        yield step
    finally:
        _CURRENT.reset(token)


@contextmanager
def outside_steps() -> Iterator[None]:
    """Mark what follows as no part of a replica's step."""
    token = _CURRENT.set(None)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def _size(data: Any) -> int | None:
    """Return the size of this replica's part of a batch, if its shape is known."""
    part = _first(data)
    return None if part is None else part.shape[0]


def _samples(data: Any) -> Any:
    """Return the size of this replica's part of a batch."""
    part = _first(data)
    return None if part is None else _rows(part)


def _first(data: Any) -> Any:
    """Return the first part of a batch that has values for each sample."""
    batches = (leaf for leaf in tree.flatten(data) if isinstance(leaf, TENSORS) and leaf.shape.rank)
    return next(batches, None)


def _rows(value: Any) -> Any:
    if isinstance(value, tf.RaggedTensor):
        return value.nrows(out_type=tf.int32)
    if isinstance(value, tf.SparseTensor):
        return tf.cast(value.dense_shape[0], tf.int32)
    return tf.shape(value)[0]
