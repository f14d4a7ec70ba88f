# ruff: noqa: ANN401, SLF001 - Keras has no annotations, and its defects are in its private parts
"""What a step builds in a worker with several devices: created at once, not in its graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from .cluster import has_several_devices, in_one_of_several_replicas
from .parts import BaseOptimizer, Layer, Model, name_scope
from .repair import Repair, Sign, replace
from .use import ways_in

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["REPAIRS", "build_optimizer"]


def _build_layers_outside_the_graph() -> None:
    """Create a layer's variables outside the graph of the step that calls it first.

    Where the graph creates them, it copies the initial values from a worker's first device to its
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


def build_optimizer(optimizer: Any, trainable_variables: Any) -> None:
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
