# ruff: noqa: ANN401 - Keras and TensorFlow have no annotations
"""The terms of a loss that the user's code computes, beside those that Keras divides."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from mwmagic.model.variables import ANNOUNCED

from .parts import TensorFlowTrainer
from .repair import replace
from .step import current_step

if TYPE_CHECKING:
    from collections.abc import Collection

    from .step import Step

__all__ = ["point_out_own_terms", "watch_gradients"]

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
DIVISIONS = {"RealDiv", "DivNoNan"}
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
        if step is not None and not tf.executing_eagerly():
            step.own_terms = step.own_terms or _has_own_term(step, target, sources)
        return original(self, target, sources, *args, **kwargs)

    replace(tf.GradientTape, "gradient", gradient)


def point_out_own_terms(step: Step, replicas: int) -> None:
    """Warn if the user's code computes a part of the loss that it does not divide."""
    own = not step.divided if step.own_terms is None else step.own_terms
    if own and _may_compute_losses(step.model):
        text = OWN_TERM if step.divided else OWN_LOSS
        warnings.warn(text.format(n=replicas), stacklevel=2)


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
    """Return what a tensor's gradient goes on to, unless the gradient is divided there."""
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
