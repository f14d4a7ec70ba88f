# ruff: noqa: ANN401, SLF001 - Keras has no annotations, and its defects are in its private parts
"""Gradients are summed over the replicas first, then clipped, accumulated and applied.

Variables that such a step builds in a worker with several devices are created at once, not in its
graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from mwmagic.hooks import has_several_devices, in_one_of_several_replicas
from mwmagic.recovery.task.updates import updating

from .parts import BaseOptimizer, Layer, LossScaleOptimizer, Model, TFOptimizer, name_scope
from .repair import Repair, Sign, Use, replace, ways_in
from .terms import watch_applied

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["REPAIRS"]

# The attribute that counts the replicas of this worker whose gradients for an optimizer are
# sums already. A context variable would not reach the threads that replicas run in.
ADDED = "_mwmagic_gradients_are_added"


def _add(grads: Any) -> list[Any]:
    """Return the gradients summed over all replicas; one that is None is None on all of them."""
    watch_applied(grads)
    present = [grad for grad in grads if grad is not None]
    context = tf.distribute.get_replica_context()
    added = context.all_reduce(tf.distribute.ReduceOp.SUM, present) if present else []
    rest = iter([_joined(grad, context.num_replicas_in_sync) for grad in added])
    return [None if grad is None else next(rest) for grad in grads]


def _joined(grad: Any, replicas: int) -> Any:
    """Add up the replicas' slices if all looked up the same rows, as of positions in a text.

    The sum of sparse gradients lists the slices of each replica. In one process there is one
    slice for each such row, and Keras's optimizers square the slices of a row one by one.
    """
    if not isinstance(grad, tf.IndexedSlices):
        return grad
    total = tf.shape(grad.indices)[0]
    count = total // replicas
    first = grad.indices[:count]

    def alike() -> Any:
        return tf.reduce_all(tf.reshape(grad.indices, (replicas, count)) == first)

    def joined() -> tuple[Any, Any]:
        shape = tf.concat([(replicas, count), tf.shape(grad.values)[1:]], axis=0)
        return tf.reduce_sum(tf.reshape(grad.values, shape), axis=0), first

    same = tf.cond(count * replicas == total, alike, lambda: tf.zeros((), tf.bool))
    values, indices = tf.cond(same, joined, lambda: (grad.values, grad.indices))
    return tf.IndexedSlices(values, indices, grad.dense_shape)


def _add_before_applying() -> None:
    """Sum the gradients over the replicas before anything else is done with them.

    The original clips and accumulates each replica's own gradients and sums the results,
    which gives different numbers. It also updates variables inside `ops.cond` from within
    a replica, where such a strategy cannot synchronise, so gradient accumulation and
    `ema_overwrite_frequency` fail. Here, everything after the summation runs once, for all
    replicas together.
    """
    original = BaseOptimizer.apply

    def apply(self: Any, grads: Any, trainable_variables: Any = None) -> None:
        if not in_one_of_several_replicas():
            original(self, grads, trainable_variables)
            return
        _build_optimizer(self, trainable_variables)
        if getattr(self, ADDED, 0):
            update(self, grads, trainable_variables)
            return
        added = _add(grads)
        with updating(added):
            update(self, added, trainable_variables)

    def update(self: Any, added: Any, trainable_variables: Any) -> None:
        def together(strategy: Any, grads: Any) -> None:
            local = [g if g is None else strategy.experimental_local_results(g)[0] for g in grads]
            original(self, local, trainable_variables)

        tf.distribute.get_replica_context().merge_call(together, args=(added,))

    replace(BaseOptimizer, "apply", apply)
    _call_where_nothing_is_to_merge()


def _call_where_nothing_is_to_merge() -> None:
    """Let Keras's optimizer updates run outside a replica.

    They go through TensorFlow's `maybe_merge_call`, which calls a method of None there.
    """
    interim = tf.__internal__.distribute.interim
    original = interim.maybe_merge_call

    def maybe_merge_call(function: Any, strategy: Any, *args: Any, **kwargs: Any) -> Any:
        if tf.distribute.in_cross_replica_context():
            return function(strategy, *args, **kwargs)
        return original(function, strategy, *args, **kwargs)

    replace(interim, "maybe_merge_call", maybe_merge_call)


def _check_added_gradients() -> None:
    """Sum the gradients before checking whether they are finite.

    The original assumes that they are sums already. If they overflow on one worker only,
    each worker decides for itself whether to apply them, and the next reduction never
    completes.
    """
    original = LossScaleOptimizer.apply

    def apply(self: Any, grads: Any, trainable_variables: Any = None) -> None:
        if not in_one_of_several_replicas():
            original(self, grads, trainable_variables)
            return
        _build_optimizer(self, trainable_variables)
        added = _add(grads)
        inner = self.inner_optimizer
        setattr(inner, ADDED, getattr(inner, ADDED, 0) + 1)
        try:
            with updating(added):
                original(self, added, trainable_variables)
        finally:
            setattr(inner, ADDED, getattr(inner, ADDED) - 1)

    replace(LossScaleOptimizer, "apply", apply)


def _build_layers_outside_the_graph() -> None:
    """Create a layer's variables outside the graph of the step that calls it first.

    If the graph creates them, it copies the initial values from a worker's first device to its
    others. TensorFlow then has to put the graph into a `tf.cond`, in which the keys of collectives
    are placeholders that nothing feeds.
    """
    original = Layer._maybe_build

    def _maybe_build(self: Any, call_spec: Any) -> None:
        if self.built or not _creates_copies():
            original(self, call_spec)
            return
        _run_outside_the_graph(lambda: original(self, call_spec))

    replace(Layer, "_maybe_build", _maybe_build)


def _build_optimizer(optimizer: Any, trainable_variables: Any) -> None:
    """Build an optimizer outside the graph of the step that applies it first."""
    if optimizer.built or trainable_variables is None or not _creates_copies():
        return

    def build() -> None:
        with name_scope(optimizer.name, caller=optimizer):
            optimizer.build(list(trainable_variables))
        optimizer.built = True

    _run_outside_the_graph(build)


def _creates_copies() -> bool:
    """Return whether this is a replica's part of a graph, and its worker has several replicas."""
    in_graph = not tf.executing_eagerly() and in_one_of_several_replicas()
    return in_graph and has_several_devices(tf.distribute.get_strategy())


def _run_outside_the_graph(build: Callable[[], None]) -> None:
    """Run a function once for all replicas of this worker, in the strategy's scope."""

    def once(strategy: Any) -> None:
        with tf.init_scope(), strategy.scope():
            build()

    tf.distribute.get_replica_context().merge_call(once)


REPAIRS = (
    Repair(
        "gradient clipping, accumulation and EMA",
        "keras-team/keras#20582",
        (
            Sign(BaseOptimizer, "_backend_apply_gradients", "self._clip_gradients(grads)"),
            Sign(BaseOptimizer, "apply", "self._backend_apply_gradients(grads,"),
            Sign(
                TFOptimizer,
                "_backend_update_step",
                "self._all_reduce_sum_gradients(grads_and_vars)",
            ),
            Sign(tf.__internal__.distribute.interim, "maybe_merge_call", "merge_call("),
        ),
        _add_before_applying,
    ),
    Repair(
        "mixed precision",
        "optimizers/loss_scale_optimizer.py#L256",
        (
            Sign(LossScaleOptimizer, "_tf_apply", "self.check_finite, args=(grads,)"),
            Sign(LossScaleOptimizer, "apply", "self._tf_apply(grads, trainable_variables)"),
        ),
        _check_added_gradients,
        uses=(Use(LossScaleOptimizer, "apply"),),
    ),
    Repair(
        "building in a step, with several devices",
        "layers/layer.py#L1539",
        (
            Sign(
                Layer,
                "_maybe_build",
                "if self.built:",
                ("self.build(**shapes_dict)", "self._build_from_call_spec(call_spec)"),
            ),
        ),
        _build_layers_outside_the_graph,
        uses=ways_in(Model, BaseOptimizer, has_several_devices),
    ),
)
