# ruff: noqa: ANN401 - Keras has no annotations
"""What layers add to the loss: each replica's own, and sums over samples kept whole."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from .cluster import divides_batches, has_several_devices
from .parts import Layer, tree
from .repair import Repair, Sign, replace
from .step import current_step
from .use import Use

__all__ = ["REPAIRS"]


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
