# ruff: noqa: ANN401 - Keras has no annotations
"""A loss over the whole batch, however it is divided among the replicas.

The losses that layers add stay each replica's own, and sums over samples stay whole.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from mwmagic.hooks import divides_batches, has_several_devices

from .parts import CompileLoss, Layer, compile_utils, global_state, ops, tree
from .parts import loss_module as module
from .repair import Repair, Sign, Use, replace
from .step import Step, current_step
from .terms import watch_gradients

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

    Layer._losses = property(losses, assign)  # noqa: SLF001 - it has no public name


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
)
