# ruff: noqa: ANN401, SLF001 - Keras has no annotations, and its defects are in its private parts
"""Losses and gradients of the whole batch, however it is divided among the replicas.

A loss is one over the whole batch. The losses that layers add stay each replica's own, and sums
over samples stay whole. Gradients are summed over the replicas first, then clipped, accumulated and
applied. Variables that such a step builds in a worker with several devices are created at once, not
in its graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from mwmagic.hooks import divides_batches, has_several_devices, in_one_of_several_replicas
from mwmagic.recovery.task.updates import updating

from .parts import (
    BaseOptimizer,
    CompileLoss,
    Layer,
    LossScaleOptimizer,
    Model,
    TFOptimizer,
    compile_utils,
    global_state,
    name_scope,
    ops,
    tree,
)
from .parts import loss_module as module
from .repair import Repair, Sign, Use, replace, ways_in
from .step import Step, current_step, watch_applied, watch_gradients

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["REPAIRS"]

MEANS = {"sum_over_batch_size", "mean", "mean_with_sample_weight"}


def _divide_by_global_count() -> None:
    """Divide a loss by the count of all samples, not each replica's part by its own.

    The original averages within each replica and then over replicas. That is not the mean
    over the batch if replicas have unequal shares: in the last batch of a dataset, and
    wherever a mask hides some of the samples.

    A loss that a layer computes for `add_loss` is a mean over its replica, because Keras
    divides added losses by the number of replicas (in the original, it is then divided
    twice).
    """
    original = module.reduce_weighted_values

    def reduce_weighted_values(
        values: Any,
        sample_weight: Any = None,
        mask: Any = None,
        reduction: str | None = "sum_over_batch_size",
        dtype: Any = None,
    ) -> Any:
        step = current_step()
        if step is None or reduction not in {*MEANS, "sum"}:
            return original(values, sample_weight, mask, reduction, dtype)
        values = ops.convert_to_tensor(values, dtype=dtype)
        weight = module.apply_mask(sample_weight, mask, dtype=values.dtype, reduction="sum")
        if weight is not None:
            weight = ops.cast(weight, values.dtype)
            values, weight = module.squeeze_or_expand_to_same_rank(values, weight)
            values *= weight
        equal = step.alike and values.shape.is_fully_defined()
        if reduction == "sum":
            return ops.sum(values) if _in_a_layer() else _sum_over_all(step, values, equal)
        if values.shape.rank == 0:
            return values if _in_a_layer() else _mean_over_all(step, values)
        count = _size(values)
        if reduction == "mean_with_sample_weight" and weight is not None:
            count, equal = ops.sum(weight), False
        elif mask is not None:
            count, equal = _unmasked(values, mask), False
        if _in_a_layer():
            return ops.divide_no_nan(ops.sum(values), count)
        return _over_all(step, ops.sum(values), count, equal)

    replace(module, "reduce_weighted_values", reduce_weighted_values)


def _in_a_layer() -> bool:
    return global_state.get_global_attribute("current_call_ctx") is not None


def _size(values: Any) -> Any:
    return tf.cast(tf.size(values), values.dtype)


def _unmasked(values: Any, mask: Any) -> Any:
    """Return how many of the values a mask keeps."""
    mask = tf.cast(mask, values.dtype)
    return ops.divide_no_nan(_size(values) * ops.sum(mask), _size(mask))


def _sum_over_all(step: Step, values: Any, equal: bool) -> Any:
    """Return the sum over all replicas, with the gradient of this replica's part in it.

    If the replicas have equally many values, the metrics weight the replicas equally, and
    multiples of their own sums stand for the sum over all.
    """
    context, part = tf.distribute.get_replica_context(), ops.sum(values)
    if equal:
        return _with_gradient_of(step, part, part * context.num_replicas_in_sync)
    whole = context.all_reduce(tf.distribute.ReduceOp.SUM, tf.stop_gradient(part))
    return _with_gradient_of(step, part, whole)


def _mean_over_all(step: Step, value: Any) -> Any:
    """Return the mean over all samples, of which `value` is the mean over this replica's."""
    if step.samples is None:
        return _over_all(step, value, tf.ones_like(value), equal=True)
    samples = tf.cast(step.samples, value.dtype)
    return _over_all(step, _or_zero(step, value) * samples, samples)


def _or_zero(step: Step, value: Any) -> Any:
    """Return a loss, or 0 on a replica without samples, where a mean is 0 / 0."""
    return value if step.samples is None else tf.where(step.samples > 0, value, 0)


def _over_all(step: Step, total: Any, count: Any, equal: bool = False) -> Any:
    """Return the mean over all replicas, with the gradient of this replica's part in it.

    The optimizer sums the replicas' gradients, so each has to be a part of the whole, but
    metrics and custom steps see the value of the whole.
    """
    context = tf.distribute.get_replica_context()
    if equal:
        whole, value = count * context.num_replicas_in_sync, ops.divide_no_nan(total, count)
    else:
        parts = tf.stop_gradient(tf.stack([total, count]))
        sums = context.all_reduce(tf.distribute.ReduceOp.SUM, parts)
        whole, value = sums[1], ops.divide_no_nan(sums[0], sums[1])
    return _with_gradient_of(step, ops.divide_no_nan(total, whole), value)


def _with_gradient_of(step: Step, part: Any, value: Any) -> Any:
    """Return `value` with the gradient of `part`, which is a replica's part of it.

    If this is a term of another loss, that one will be divided as a whole: until then the
    term's gradient is the whole one.
    """
    if step.open_losses > 1:
        part = tf.math.divide_no_nan(part, tf.cast(step.share(), part.dtype))
        return part + tf.stop_gradient(value - part)
    divided = part + tf.stop_gradient(value - part)
    step.divided.append(divided)
    return divided


def _divide_once() -> None:
    """Divide what a user's loss returns, and nothing within it a second time.

    The original divides where `Loss.__call__` reduces. A subclass that overrides that
    method is not divided at all, and the result of a loss object that another loss calls
    is divided before that loss adds terms of its own.
    """
    call, get_loss = module.Loss.__call__, compile_utils.get_loss

    def __call__(self: Any, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:  # noqa: N807 - a method
        step = current_step()
        if step is None:
            return call(self, y_true, y_pred, sample_weight)
        with step.computing_loss():
            return call(self, y_true, y_pred, sample_weight)

    def get(identifier: Any, y_true: Any, y_pred: Any) -> Any:
        loss = get_loss(identifier, y_true, y_pred)
        own = loss is not None and type(loss).__call__ is not module.Loss.__call__
        return _Divided(loss) if own else loss

    replace(module.Loss, "__call__", __call__)
    replace(compile_utils, "get_loss", get)


class _Divided:
    """A loss whose class overrides `__call__`, and which returns a mean if it is one number."""

    def __init__(self, loss: Any) -> None:
        self._loss, self.name = loss, loss.name

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        step = current_step()
        if step is None:
            return self._loss(y_true, y_pred, sample_weight)
        with step.computing_loss():
            value = ops.convert_to_tensor(self._loss(y_true, y_pred, sample_weight))
            return value if value.shape.rank else _mean_over_all(step, value)


def _scale_gradients_alone() -> None:
    """Divide the gradient of a loss among the replicas, but not its value.

    The original divides both, and the built-in `train_step` multiplies the value again
    for its metric. A custom `train_step`, as shown in Keras's guides, does not, and so
    reports a fraction of the loss. It also gives every replica an equal part, however many
    of the samples the replica has.
    """
    scale, unscale = module.scale_loss_for_distribution, module.unscale_loss_for_distribution

    def scale_loss_for_distribution(value: Any) -> Any:
        step = current_step()
        if step is None:
            return scale(value)
        value = _or_zero(step, value)
        return _with_gradient_of(step, value * tf.cast(step.share(), value.dtype), value)

    def unscale_loss_for_distribution(value: Any) -> Any:
        return unscale(value) if current_step() is None else value

    replace(module, "scale_loss_for_distribution", scale_loss_for_distribution)
    replace(module, "unscale_loss_for_distribution", unscale_loss_for_distribution)
    watch_gradients()


def _keep_replicas_apart() -> None:
    """Give each replica of a worker its own list of the losses that a layer adds.

    The original has one list for each layer. The replicas of a worker with several devices
    run in threads, and one replica clears and fills the list while another waits for the
    reduction of its main loss, after which it reads the list.
    """

    def losses(self: Any) -> list[Any]:
        step = current_step()
        if step is not None:
            return step.losses.setdefault(id(self), [])
        try:
            return self.__dict__["_losses"]  # type: ignore[no-any-return]
        except KeyError:
            raise AttributeError("_losses") from None

    def assign(self: Any, value: Any) -> None:
        self.__dict__["_losses"] = value

    Layer._losses = property(losses, assign)


def _keep_the_sum_whole() -> None:
    """Undo, for sums over the batch, the division that only means need.

    Every added loss is multiplied by the replica's share of the samples. Up to 3.14 Keras's
    activity regularizers are sums over the samples, so the replicas' parts already add up
    to the whole.
    """
    original = Layer.__call__

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        outputs, step = original(self, *args, **kwargs), current_step()
        if self.activity_regularizer is not None and step is not None:
            for output in filter(tf.is_tensor, tree.flatten(outputs)):
                loss = self.activity_regularizer(output)
                whole = tf.math.divide_no_nan(loss, tf.cast(step.share(), loss.dtype))
                self.add_loss(whole - loss)  # Keras has added the loss itself
        return outputs

    replace(Layer, "__call__", call)


def _is_regularized(strategy: Any, layer: Any, *_args: Any, **_kwargs: Any) -> bool:
    return layer.activity_regularizer is not None and divides_batches(strategy)


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
        "uneven and masked batches",
        "losses/loss.py#L140",
        (
            Sign(
                module,
                "reduce_values",
                "ops.divide_no_nan(loss, divisor)",
                "scale_loss_for_distribution(loss)",
            ),
            Sign(
                module,
                "reduce_weighted_values",
                "loss = reduce_values(values, sample_weight, reduction)",
            ),
            Sign(module, "apply_mask"),
            Sign(module, "squeeze_or_expand_to_same_rank"),
        ),
        _divide_by_global_count,
    ),
    Repair(
        "losses that override `__call__` or call others",
        "losses/loss.py#L56",
        (
            Sign(module.Loss, "__call__", "return reduce_weighted_values("),
            Sign(compile_utils, "get_loss", "losses_module.get(identifier)"),
            Sign(CompileLoss, "_build_nested", "get_loss(_loss, y_true, y_pred)"),
        ),
        _divide_once,
    ),
    Repair(
        "the loss in a custom train_step",
        "keras-team/keras#20610",
        (
            Sign(
                module, "scale_loss_for_distribution", "ops.cast(1.0 / num_replicas, value.dtype)"
            ),
            Sign(module, "unscale_loss_for_distribution", "ops.cast(num_replicas, value.dtype)"),
            Sign(tf.GradientTape, "gradient"),
        ),
        _scale_gradients_alone,
    ),
    Repair(
        "added losses, with several devices in a worker",
        "layers/layer.py#L1323",
        (
            Sign(Layer, "_clear_losses", "self._losses.clear()"),
            Sign(Layer, "add_loss", "self._losses.extend(losses)"),
            Sign(Layer, "_get_own_losses", "return self._losses[:]"),
        ),
        _keep_replicas_apart,
        uses=(Use(Layer, "add_loss", has_several_devices),),
    ),
    Repair(
        "activity regularizers",
        "keras-team/keras#22018",
        (Sign(Layer, "__call__", "self.add_loss(self.activity_regularizer(output))"),),
        _keep_the_sum_whole,
        cured=(Sign(Layer, "__call__", "loss = ops.divide_no_nan(loss, batch_size)"),),
        uses=(Use(Layer, "__call__", _is_regularized),),
    ),
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
