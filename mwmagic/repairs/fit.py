# ruff: noqa: ANN401, SLF001 - Keras has no annotations, and its defects are in its private parts
"""What `fit`, `evaluate` and `predict` need to run at all under a multi-worker strategy.

Objects created outside `strategy.scope()` are brought in, refused, or warned about, and a variable
of the strategy can be read as a number, as in `float(optimizer.learning_rate)`.
"""

from __future__ import annotations

import warnings
from itertools import chain
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.python.distribute.values import PerReplicaSpec
from tensorflow.python.eager import context

from mwmagic.hooks import divides_batches, first_local, in_cluster, spans_workers
from mwmagic.model.variables import ANNOUNCED

from .metrics import gathered, watched
from .parts import (
    BaseOptimizer,
    BaseTrainer,
    KerasVariable,
    Model,
    TensorFlowTrainer,
    trainer,
    tree,
)
from .repair import KerasRefused, Repair, Sign, Use, replace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["REPAIRS"]

ISSUE = "keras-team/keras#20585"
COMPOSITE = (tf.RaggedTensor, tf.SparseTensor)


def _build_from_the_element_spec() -> None:
    """Build the model from the dataset's element spec.

    The original averages the first batch over the workers, but `reduce` takes no nests.
    Only the batch's shapes and types matter. The spec has them too, and does not take a
    batch from a generator that yields it only once.
    """
    cls = TensorFlowTrainer
    original = cls._maybe_symbolic_build

    def _maybe_symbolic_build(self: Any, iterator: Any = None, data_batch: Any = None) -> None:
        if not divides_batches(self._distribute_strategy):
            original(self, iterator=iterator, data_batch=data_batch)
            return
        if iterator is not None:
            data_batch = _local_spec(iterator._distributed_dataset.element_spec)
        _adopt_optimizers(self)
        _refuse_foreign_weights(self)
        if not _is_only_stepped(self):
            with watched(self):
                original(self, data_batch=data_batch)
        _bring_metrics_in(self)

    replace(cls, "_maybe_symbolic_build", _maybe_symbolic_build)


def _is_only_stepped(model: Any) -> bool:
    """Return whether a model has built layers and a `train_step`, but no `call`, like a GAN.

    A single process never calls it either.
    """
    inner = model._flatten_layers(include_self=False)
    return (
        type(model).call is Model.call
        and type(model).train_step is not TensorFlowTrainer.train_step
        and all(layer.built for layer in inner)
    )


def _local_spec(spec: Any) -> Any:
    """Replace each per-replica spec by that of this worker's first replica."""

    def first(leaf: Any) -> Any:
        return leaf._value_specs[0] if isinstance(leaf, PerReplicaSpec) else leaf

    return tree.map_structure(first, spec)


def _reduce_over_replicas() -> None:
    """Average a step's logs over the workers, and gather predictions of every type.

    The original averages along axis 0 of each value, but logs are scalars. It gathers with a
    collective that carries neither strings nor booleans, and cuts what is not dense.
    """
    original = trainer.reduce_per_replica

    def reduce_per_replica(values: Any, strategy: Any, reduction: str) -> Any:
        if reduction in {"auto", "mean"} and divides_batches(strategy):
            return tree.map_structure(
                lambda value: strategy.reduce("MEAN", value, axis=None), values
            )
        if reduction == "concat" and divides_batches(strategy):
            return first_local(strategy, strategy.run(_gathered_outputs, args=(values,)))
        return original(values, strategy, reduction)

    replace(trainer, "reduce_per_replica", reduce_per_replica)


def _gathered_outputs(outputs: Any) -> Any:
    return tree.map_structure(_gathered_output, outputs)


def _gathered_output(output: Any) -> Any:
    if output is None:
        return None
    output = output if isinstance(output, COMPOSITE) else tf.convert_to_tensor(output)
    if output.shape.rank == 0:
        raise KerasRefused(
            "this model predicts one value for a batch, and each worker predicts for its own share "
            "of the samples. Return a value for each sample, of shape (batch,)."
        )
    return gathered(output)


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


def _adopt_optimizers(model: Any) -> None:
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


def _refuse_foreign_weights(model: Any) -> None:
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


def _bring_metrics_in(model: Any) -> None:
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


def _convert() -> None:
    """Make a number of a variable that a strategy mirrors, which TensorFlow does not."""
    replace(KerasVariable, "__float__", _converting(float, KerasVariable.__float__))
    replace(KerasVariable, "__int__", _converting(int, KerasVariable.__int__))


def _converting(number: type[float], original: Callable[[Any], float]) -> Callable[[Any], float]:
    def convert(self: Any) -> float:
        if self.ndim == 0 and divides_batches(getattr(self.value, "distribute_strategy", None)):
            return number(self.numpy())
        return original(self)

    return convert


REPAIRS = (
    Repair(
        "fit",
        ISSUE,
        (
            Sign(
                TensorFlowTrainer,
                "_maybe_symbolic_build",
                '.reduce("MEAN", maybe_distributed_data_batch, axis=None',
            ),
        ),
        _build_from_the_element_spec,
    ),
    Repair(
        "evaluate",
        ISSUE,
        (Sign(trainer, "reduce_per_replica", 'strategy.reduce("MEAN", v, axis=0)'),),
        _reduce_over_replicas,
    ),
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
    Repair(
        "`float` of a variable",
        "backend/common/variables.py#L436",
        (
            Sign(KerasVariable, "__float__", "return float(self.value)"),
            Sign(KerasVariable, "__int__", "return int(self.value)"),
        ),
        _convert,
        uses=(Use(KerasVariable, "__float__"), Use(KerasVariable, "__int__")),
    ),
)
