# ruff: noqa: ANN401, SLF001 - Keras has no annotations, and its defects are in its private parts
"""What the workers make equal after each execution: logs and the model's state.

Everything travels in one reduction, because the number of round trips dominates on a
network.
"""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf
from keras.src import tree
from keras.src.backend.common.stateless_scope import StatelessScope
from keras.src.backend.tensorflow import core

from .cluster import add_up, first_local
from .repair import Repair, Sign, replace
from .step import current_step

__all__ = ["REPAIRS", "agree"]

# Beyond this many numbers (a confusion matrix of 256 classes), running logs
# are averaged over the workers instead of being computed from all of them. The values at
# the end of an epoch are exact either way: Keras reads those from every worker.
METRIC_STATE_LIMIT = 65_536


def agree(model: Any, outputs: Any, updated: dict[int, Any]) -> Any:
    """Make the model's state and the logs equal on all replicas.

    Parameters
    ----------
    model : keras.Model
        The model in training.
    outputs : nest
        What the last step returned on this worker, usually logs by name.
    updated : dict
        The state that the steps have updated on each replica separately.

    Returns
    -------
    nest
        The logs that one process with the whole batch would have: from the
        metrics' state summed over the replicas, or, where a step returns
        something else than its model's metrics, their average.
    """
    strategy = model.distribute_strategy
    replicas = strategy.num_replicas_in_sync

    def replica(outputs: Any) -> Any:
        states, metrics = list(updated.values()), _metric_state(model, outputs)
        logs = [] if metrics else list(filter(_is_log, tree.flatten(outputs)))
        means = (
            [True] * len(states) + [m.aggregation == "mean" for m in metrics] + [True] * len(logs)
        )
        sums = add_up([tf.convert_to_tensor(v) for v in (*states, *metrics, *logs)])
        shared = iter([s / replicas if mean else s for s, mean in zip(sums, means, strict=True)])
        for state in states:
            state.assign(next(shared))
        if metrics:
            with StatelessScope(state_mapping=[(m, next(shared)) for m in metrics]):
                return model.get_metrics_result()
        return tree.map_structure(lambda v: next(shared) if _is_log(v) else v, outputs)

    return first_local(strategy, strategy.run(replica, args=(outputs,)))


def _metric_state(model: Any, outputs: Any) -> list[Any]:
    """Return the variables of the metrics that the logs come from, if they do and are few."""
    if not isinstance(outputs, dict) or set(outputs) != set(model.get_metrics_result()):
        return []
    variables = [v for metric in model.metrics for v in metric.variables]
    summable = all(v.aggregation in {"sum", "mean"} for v in variables)
    few = sum(math.prod(v.shape) for v in variables) <= METRIC_STATE_LIMIT
    return variables if summable and few else []


def _is_log(value: Any) -> bool:
    return tf.is_tensor(value) and value.dtype.is_floating and value.shape.rank == 0  # type: ignore[no-any-return]


def _watch_updates() -> None:
    """Note which state of the model a step updates, and protect it from empty batches.

    Such state, for example the moving statistics of BatchNormalization, has no
    aggregation in Keras 3, so each replica keeps its own. `agree` averages it.
    A replica without any samples would update it with 0 / 0.
    """
    original = core.Variable._direct_assign

    def _direct_assign(self: Any, value: Any) -> None:
        step = current_step()
        if step is not None and step.holds(self):
            step.updated[id(self)] = self
            if step.samples is not None:
                value = tf.cast(value, self._value.dtype)
                nothing = (step.samples == 0) & ~tf.math.is_finite(value)
                value = tf.where(nothing, self._value, value)
        original(self, value)

    replace(core.Variable, "_direct_assign", _direct_assign)


REPAIRS = (
    Repair(
        "BatchNormalization statistics",
        "backend/tensorflow/core.py#L70",
        (Sign(core.Variable, "_direct_assign", "self._value.assign(tf.cast(value,"),),
        _watch_updates,
    ),
)
