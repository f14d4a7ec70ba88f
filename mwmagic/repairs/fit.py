# ruff: noqa: ANN401, SLF001 - Keras has no annotations, and its defects are in its private parts
"""What `fit`, `evaluate` and `predict` need to run at all under a multi-worker strategy."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.python.distribute.values import PerReplicaSpec

from .cluster import divides_batches, first_local
from .gather import gathered
from .metrics import watched
from .parts import Model, TensorFlowTrainer, trainer, tree
from .repair import KerasRefused, Repair, Sign, replace
from .scope import adopt_optimizers, bring_metrics_in, refuse_foreign_weights

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
        adopt_optimizers(self)
        refuse_foreign_weights(self)
        if not _is_only_stepped(self):
            with watched(self):
                original(self, data_batch=data_batch)
        bring_metrics_in(self)

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
)
