# ruff: noqa: ANN401 - Keras has no annotations
"""Activity regularizers that are sums over the samples."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from keras.src.layers.layer import Layer

from .repair import Repair, Sign, replace
from .step import current_step

__all__ = ["REPAIRS"]


def _keep_the_sum_whole() -> None:
    """Undo, for sums over the batch, the division that only means need.

    Every added loss is multiplied by the replica's share of the samples. Up to 3.14 Keras's
    activity regularizers are sums over the samples, so the replicas' parts already add up
    to the whole.
    """
    original = Layer.__call__

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        regularizer, step = self.activity_regularizer, current_step()
        if regularizer is None or step is None:
            return original(self, *args, **kwargs)

        def whole(output: Any) -> Any:
            loss = regularizer(output)
            return tf.math.divide_no_nan(loss, tf.cast(step.share(), loss.dtype))

        self.activity_regularizer = whole
        try:
            return original(self, *args, **kwargs)
        finally:
            self.activity_regularizer = regularizer

    replace(Layer, "__call__", call)


REPAIRS = (
    Repair(
        "activity regularizers",
        "keras-team/keras#22018",
        (Sign(Layer, "__call__", "self.add_loss(self.activity_regularizer(output))"),),
        _keep_the_sum_whole,
        cured=(Sign(Layer, "__call__", "loss = ops.divide_no_nan(loss, batch_size)"),),
    ),
)
