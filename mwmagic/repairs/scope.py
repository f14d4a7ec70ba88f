# ruff: noqa: ANN401, SLF001 - Keras has no annotations, and its defects are in its private parts
"""What was created outside `strategy.scope()`: brought in, refused, or warned about."""

from __future__ import annotations

import warnings
from itertools import chain
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.python.eager import context

from mwmagic.model.variables import ANNOUNCED

from .cluster import divides_batches, in_cluster, spans_workers
from .parts import BaseOptimizer, BaseTrainer, TensorFlowTrainer
from .repair import KerasRefused, Repair, Sign, replace

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "REPAIRS",
    "adopt_optimizers",
    "bring_metrics_in",
    "refuse_foreign_weights",
]

ALONE = (
    f"{ANNOUNCED}this model was created outside MultiWorkerMirroredStrategy.scope(), so this "
    "worker trains it alone, and the others do not see what it learns."
)


def _compile_in_scope() -> None:
    """Enter the model's strategy in `compile`, as Keras 2 did.

    Otherwise an optimizer given by name belongs to no strategy, and `fit` raises "Mixing
    different tf.distribute.Strategy objects".
    """
    original = BaseTrainer.compile

    def compile_in_scope(self: Any, *args: Any, **kwargs: Any) -> None:
        strategy: Any = getattr(self, "_distribute_strategy", None)
        if not divides_batches(strategy):
            original(self, *args, **kwargs)
            return
        with strategy.scope():
            original(self, *args, **kwargs)
        _adopt(self.optimizer, strategy)

    replace(BaseTrainer, "compile", compile_in_scope)


def adopt_optimizers(model: Any) -> None:
    """Give a model's optimizers to its strategy, such as the two that a GAN is compiled with."""
    for optimizer in _optimizers(model):
        _adopt(optimizer, model.distribute_strategy)


def _optimizers(model: Any) -> list[Any]:
    """Return the optimizers that are a model's attributes, or in lists or dicts that are."""
    found = chain.from_iterable(map(_members, vars(model).values()))
    return [each for each in found if isinstance(each, BaseOptimizer)]


def _members(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, (list, tuple)) else (value,)


def _adopt(optimizer: Any, strategy: Any) -> None:
    """Give an optimizer that is not built yet, and those within it, to a strategy."""
    if optimizer is None:
        return
    if not optimizer.built:
        optimizer._distribution_strategy = strategy
    for inner in (getattr(optimizer, "inner_optimizer", None), *_parts_of(optimizer)):
        _adopt(inner, strategy)


def _parts_of(optimizer: Any) -> Iterable[Any]:
    """Return the optimizers that a `MultiOptimizer` passes variables on to."""
    return getattr(optimizer, "_inner_optimizers", ())


def refuse_foreign_weights(model: Any) -> None:
    """Refuse a model that trains weights which do not belong to its strategy.

    Weights that are not trained may come from outside, such as an adapted
    `Normalization` layer or a frozen base.
    """
    optimized = [weight for each in _optimizers(model) for weight in _optimized(each)]
    for weight in (*model.trainable_variables, *optimized):
        if not _is_distributed(weight):
            raise KerasRefused(
                f"{weight.path} was created outside strategy.scope(), so every worker would train "
                "its own copy. Create and build the model, with every layer in it, inside "
                "`with strategy.scope():`. (--keras legacy would refuse it too.)"
            )


def _optimized(optimizer: Any) -> Any:
    return getattr(optimizer, "_trainable_variables", ())


def bring_metrics_in(model: Any) -> None:
    """Give metrics that were created outside the scope variables inside it.

    With their own variables, each worker would report on its own samples alone.
    """
    with model._distribute_strategy.scope():
        for metric in model.metrics:
            for variable in metric.variables:
                if not _is_distributed(variable):
                    variable._initialize(variable.numpy())


def _is_distributed(variable: Any) -> bool:
    return isinstance(getattr(variable, "value", variable), tf.distribute.DistributedValues)


def _point_out_training_alone() -> None:
    """Warn where a model outside a multi-worker strategy's scope is trained beside it."""
    original = TensorFlowTrainer.fit

    def fit(self: Any, *args: Any, **kwargs: Any) -> Any:
        # Creating the strategy leaves this in TensorFlow's context.
        made = getattr(context.context(), "_collective_leader", None)
        if made and in_cluster() and not spans_workers(self.distribute_strategy):
            warnings.warn(ALONE, stacklevel=2)
        return original(self, *args, **kwargs)

    replace(TensorFlowTrainer, "fit", fit)


REPAIRS = (
    Repair(
        "compile",
        "trainers/trainer.py#L40",
        (Sign(BaseTrainer, "compile", "self.optimizer = optimizer", lacks=".scope()"),),
        _compile_in_scope,
    ),
    Repair(
        "fit outside the scope",
        "backend/tensorflow/trainer.py#L315",
        (Sign(TensorFlowTrainer, "fit", "self.distribute_strategy"),),
        _point_out_training_alone,
    ),
)
