# ruff: noqa: ANN401 - Keras and TensorFlow have no annotations
"""The training or test step that is running, and what its author computes of a share of the batch.

Several repairs apply only inside the step that `Model.fit` or `Model.evaluate` passes to
`strategy.run`, so that a custom training loop keeps the behaviour its author has seen.

Three things come out of a worker's share in such a step that one process computes of the whole: a
term of the loss beside those that Keras divides, a gradient that the step changes before it is
summed, and a loss that compares samples with each other. Each is found in the graph of the step,
when it is traced.
"""

from __future__ import annotations

import math
import warnings
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from mwmagic.model.variables import ANNOUNCED

from .parts import TensorFlowTrainer, tree
from .repair import replace

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

__all__ = [
    "OWN_SIZES",
    "Step",
    "Updated",
    "current_step",
    "outside_steps",
    "point_out_shares",
    "running",
    "watch_applied",
    "watch_gradients",
]

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


OWN_LOSS = (
    ANNOUNCED + "this train_step computes its loss without compute_loss or a keras.losses object. "
    "Gradients are summed over the {n} replicas, so if the loss is a mean over the batch, divide "
    "it by {n} (strategy.num_replicas_in_sync) before taking the gradient."
)
OWN_TERM = (
    ANNOUNCED
    + "this loss has a term that neither compute_loss nor a keras.losses object computes. "
    "Gradients are summed over the {n} replicas, so if the term is a mean over the batch or "
    "depends on the weights alone, as sum(self.losses) does, divide it by {n} "
    "(strategy.num_replicas_in_sync)."
)
CHANGES = (
    ANNOUNCED + "this train_step changes the gradients before it applies them, so each of the {n} "
    "replicas changes those of its own samples, and then they are summed. To clip the sum, give "
    "the optimizer global_clipnorm=, clipnorm= or clipvalue=. For anything else, sum them first: "
    "tf.distribute.get_replica_context().all_reduce('SUM', gradients), and divide what you apply "
    "by {n} (strategy.num_replicas_in_sync)."
)
COMPARES = (
    ANNOUNCED + "this loss compares the samples of a batch with each other. Each of the {n} "
    "replicas compares those of its own share alone, so the numbers cannot be those of one "
    "process. Choose the batch so that a share is large enough."
)
DIVISIONS = {"RealDiv", "DivNoNan"}
PRODUCTS = {"Mul", *DIVISIONS}
SUMS = {"Add", "AddV2", "AddN", "Sub"}
# What gives another result for a sum than for its parts.
NONLINEAR = {
    *("Abs", "Maximum", "Minimum", "ClipByValue", "Sign"),
    *("Exp", "Log", "Pow", "Rsqrt", "Sigmoid", "Sqrt", "Square", "L2Loss", "Tanh"),
}
REDUCTIONS = ("Collective", "Nccl")
PAIRINGS = {"AddV2", "Einsum", "MatMul", "Mul", "RealDiv", "SquaredDifference", "Sub"}
SHAPES = {"Rank", "Shape", "ShapeN", "Size"}
CUTS = {"StopGradient", "PreventGradient"}
# What a function, a branch or a loop computes is in another graph, where it is not looked for.
CALLS = {
    "PartitionedCall",
    "StatefulPartitionedCall",
    "If",
    "StatelessIf",
    "While",
    "StatelessWhile",
}


def watch_gradients() -> None:
    """Look, wherever a step is traced, at the losses whose gradients are taken."""
    original = tf.GradientTape.gradient

    def gradient(self: Any, target: Any, sources: Any, *args: Any, **kwargs: Any) -> Any:
        step = current_step()
        if step is None or tf.executing_eagerly():
            return original(self, target, sources, *args, **kwargs)
        step.own_terms = step.own_terms or _has_own_term(step, target, sources)
        step.compares = step.compares or _compares_samples(step, target)
        gradients = original(self, target, sources, *args, **kwargs)
        step.gradients += _floats(gradients)
        return gradients

    replace(tf.GradientTape, "gradient", gradient)


def watch_applied(gradients: Any) -> None:
    """Look at the gradients that a traced step applies, before they are summed."""
    step = current_step()
    if step is not None and not tf.executing_eagerly():
        step.changes = step.changes or _are_changed(gradients, step.gradients)


def point_out_shares(step: Step, replicas: int) -> None:
    """Warn if the user's code computes of a share what it should compute of the batch."""
    texts = [OWN_TERM if step.divided else OWN_LOSS] if _computes_own_terms(step) else []
    texts += [CHANGES] * step.changes + [COMPARES] * step.compares
    for text in texts:
        warnings.warn(text.format(n=replicas), stacklevel=2)


def _computes_own_terms(step: Step) -> bool:
    own = not step.divided if step.own_terms is None else step.own_terms
    return own and _may_compute_losses(step.model)


def _may_compute_losses(model: Any) -> bool:
    """Return whether the user's code, and not Keras's, computes a model's loss."""
    keras, own = TensorFlowTrainer, type(model)
    return own.train_step is not keras.train_step or own.compute_loss is not keras.compute_loss


def _has_own_term(step: Step, target: Any, sources: Any) -> bool:
    """Return whether a loss depends on variables otherwise than through what is divided."""
    seen = {id(tensor) for tensor in step.divided}
    handles = {id(getattr(source, "handle", None)) for source in tf.nest.flatten(sources)}
    losses = tf.nest.flatten(target, expand_composites=True)
    waiting = [loss for loss in losses if tf.is_symbolic_tensor(loss)]
    while waiting:
        tensor = waiting.pop()
        if tensor.dtype == tf.resource and id(_outermost(tensor)) in handles:
            return True
        if id(tensor) not in seen:
            waiting += _parts(tensor.op)
        seen.add(id(tensor))
    return False


def _parts(op: Any) -> Collection[Any]:
    """Return where a tensor's gradient flows next, unless the gradient is divided there."""
    if op.type in CUTS | CALLS or _divides(op):
        return ()
    return [t for t in op.inputs if t.dtype.is_floating or t.dtype == tf.resource]


def _divides(op: Any) -> bool:
    """Return whether an operation divides by the number of replicas."""
    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    if op.type in DIVISIONS:
        return math.isclose(_constant(op.inputs[1]), replicas)
    if op.type == "Mul":  # in bfloat16, a third is 0.334
        return any(math.isclose(_constant(t) * replicas, 1, rel_tol=0.01) for t in op.inputs)
    return False


def _are_changed(gradients: Any, taken: list[Any]) -> bool:
    """Return whether gradients were changed so that their parts and their sum fare differently."""
    given = set(map(id, taken))
    dependent = _dependents(taken)
    waiting = [g for g in _floats(gradients) if id(g) in dependent - given]
    seen = given | set(map(id, waiting))
    while waiting:
        op = waiting.pop().op
        numbers = [t for t in op.inputs if t.dtype.is_floating]
        own = [t for t in numbers if id(t) in dependent]
        if op.type in NONLINEAR or (op.type in PRODUCTS and len(own) > 1):
            return True
        if op.type in SUMS and len(own) < len(numbers):
            return True
        new = [t for t in own if id(t) not in seen]
        seen |= set(map(id, new))
        waiting += new
    return False


def _dependents(taken: list[Any]) -> set[int]:
    """Return the identities of numbers made of gradients, unless these were summed first."""
    waiting = [tensor for tensor in taken if tf.is_symbolic_tensor(tensor)]
    found = set(map(id, waiting))
    while waiting:
        tensor = waiting.pop()
        results = chain.from_iterable(_results(op, tensor) for op in tensor.consumers())
        new = {id(t): t for t in results if t.dtype.is_floating and id(t) not in found}
        found |= set(new)
        waiting += new.values()
    return found


def _results(op: Any, tensor: Any) -> list[Any]:
    """Return what an operation makes of one of its inputs, unless it sums it over the replicas."""
    if op.type in CALLS or op.type.startswith(REDUCTIONS):
        return []
    if op.type == "IdentityN":  # a custom gradient passes results on beside what they are made of
        return [out for out, given in zip(op.outputs, op.inputs, strict=True) if given is tensor]
    return list(op.outputs)


def _floats(tensors: Any) -> list[Any]:
    """Return the tensors of floating-point numbers in a nest."""
    leaves = tf.nest.flatten(tensors, expand_composites=True)
    return [leaf for leaf in leaves if tf.is_tensor(leaf) and leaf.dtype.is_floating]


def _compares_samples(step: Step, target: Any) -> bool:
    """Return whether a loss depends on pairs of a batch's samples, as a contrastive loss does."""
    data = [leaf for leaf in tf.nest.flatten(step.data, expand_composites=True) if _has_rows(leaf)]
    if not data or data[0].shape[0] == 1:
        return False
    batch, rows = data[0].shape[0], set(map(id, data))
    waiting = [loss for loss in _floats(target) if tf.is_symbolic_tensor(loss)]
    seen = set(map(id, waiting))
    while waiting:
        op = waiting.pop().op
        if _pairs(op, batch) and all(_is_of_samples(tensor, rows) for tensor in op.inputs):
            return True
        new = [part for part in _parts(op) if part.dtype.is_floating and id(part) not in seen]
        seen |= set(map(id, new))
        waiting += new
    return False


def _has_rows(leaf: Any) -> bool:
    return tf.is_symbolic_tensor(leaf) and bool(leaf.shape.rank)


def _pairs(op: Any, batch: int | None) -> bool:
    """Return whether an operation's result has a number for each two rows of a batch."""
    if op.type not in PAIRINGS:
        return False
    result, shapes = op.outputs[0].shape, [t.shape for t in op.inputs]
    if op.type in {"MatMul", "Einsum"}:
        return bool(result.rank) and result.as_list() == [batch, batch]
    first = [list(shape[:2]) if shape.rank else [] for shape in shapes]
    return sorted(first, key=lambda sizes: sizes[:1] == [1]) == [[batch, 1], [1, batch]]


def _is_of_samples(tensor: Any, rows: set[int]) -> bool:
    """Return whether a tensor's numbers depend on a step's data, and not on its shape alone."""
    waiting, seen = [tensor], {id(tensor)}
    while waiting:
        tensor = waiting.pop()
        if id(tensor) in rows or (
            tensor.op.type == "Placeholder" and id(_outermost(tensor)) in rows
        ):
            return True
        if tensor.op.type not in SHAPES:
            new = [part for part in tensor.op.inputs if id(part) not in seen]
            seen |= set(map(id, new))
            waiting += new
    return False


def _constant(tensor: Any) -> float:
    """Return the scalar that a tensor is known to hold while it is traced, or NaN."""
    value = tf.get_static_value(tensor)
    return float(value) if value is not None and not value.shape else math.nan


def _outermost(tensor: Any) -> Any:
    """Return what a graph has captured as a tensor, through all the graphs around it."""
    while tf.is_symbolic_tensor(tensor):
        captures = getattr(tensor.graph, "captures", ())
        outer = next((outer for outer, inner in captures if inner is tensor), None)
        if outer is None:
            return tensor
        tensor = outer
    return tensor
