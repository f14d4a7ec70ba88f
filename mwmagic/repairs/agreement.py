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
from .step import Updated, current_step

__all__ = ["REPAIRS", "agree"]

# A metric with more numbers than this (a confusion matrix of 256 classes) is averaged over the
# workers while an epoch runs, instead of being computed from all of them. Its value at the end of
# the epoch is exact either way: Keras reads it from every worker.
METRIC_STATE_LIMIT = 65_536


def agree(model: Any, outputs: Any, weight: Any, updated: Updated) -> Any:
    """Make the model's state and the logs equal on all replicas.

    Parameters
    ----------
    model : keras.Model
        The model in training.
    outputs : nest
        What the last step returned on this worker, usually logs by name.
    weight : tf.Tensor
        What `outputs` weigh in a mean over the replicas.
    updated : Updated
        What the steps have updated on each replica separately.

    Returns
    -------
    nest
        The logs that one process with the whole batch would have, key by key: from a
        metric's state summed over the replicas, or, where the step has updated no metric
        of that name, the average over the samples.
    """
    strategy = model.distribute_strategy
    replicas = strategy.num_replicas_in_sync

    def replica(outputs: Any, weight: Any) -> Any:
        states = list(updated.state.values())
        metrics = _exact_metrics(model, outputs, updated)
        variables = [v for metric in metrics for v in metric.variables]
        means = [True] * len(states) + [v.aggregation == "mean" for v in variables]
        logs = [_weighted(log, weight) for log in tree.flatten(outputs) if _is_log(log)]
        shared = [tf.convert_to_tensor(v) for v in (*states, *variables)]
        *sums, whole = add_up([*shared, *logs, weight])
        averages = iter(sums[len(shared) :])
        shared = [s / replicas if mean else s for s, mean in zip(sums, means, strict=False)]
        for state, value in zip(states, shared, strict=False):
            state.assign(value)
        outputs = tree.map_structure(
            lambda v: _average(next(averages), whole, v) if _is_log(v) else v, outputs
        )
        values = zip(variables, shared[len(states) :], strict=True)
        with StatelessScope(state_mapping=list(values)):
            return _with_results(outputs, _results(metrics))

    return first_local(strategy, strategy.run(replica, args=(outputs, weight)))


def _exact_metrics(model: Any, logs: Any, updated: Updated) -> list[Any]:
    """Return the metrics that a step has updated and logged, and whose state can be summed."""
    names = _names(logs)
    return [
        metric
        for metric in model.metrics
        if any(id(v) in updated.metrics for v in metric.variables)
        and all(v.aggregation in {"sum", "mean"} for v in metric.variables)
        and sum(math.prod(v.shape) for v in metric.variables) <= METRIC_STATE_LIMIT
        and names & set(_results([metric]))
    ]


def _names(logs: Any) -> set[str]:
    """Return all keys of logs, which may be nested."""
    if not isinstance(logs, dict):
        return set()
    return set(logs).union(*map(_names, logs.values()))


def _results(metrics: list[Any]) -> dict[str, Any]:
    """Return metrics' results by name; one that holds several metrics has all their names too."""
    results: dict[str, Any] = {}
    for metric in metrics:
        result = metric.result()
        results[metric.name] = result
        results.update(result if isinstance(result, dict) else {})
    return results


def _with_results(logs: Any, results: dict[str, Any]) -> Any:
    """Put results in the place of logs of the same name."""
    if not isinstance(logs, dict):
        return logs
    return {
        name: results[name]
        if name in results and isinstance(results[name], dict) == isinstance(log, dict)
        else _with_results(log, results)
        for name, log in logs.items()
    }


def _is_log(value: Any) -> bool:
    if not tf.is_tensor(value):
        return isinstance(value, float)
    return value.dtype.is_floating and value.shape.rank == 0  # type: ignore[no-any-return]


def _weighted(log: Any, weight: Any) -> Any:
    """Return a replica's part of an average; without samples, a log may be 0 / 0."""
    return tf.where(weight > 0, tf.cast(log, tf.float32) * weight, 0)


def _average(total: Any, weight: Any, log: Any) -> Any:
    """Return an average in the type of a replica's own log."""
    average = tf.math.divide_no_nan(total, weight)
    return tf.cast(average, log.dtype) if tf.is_tensor(log) else average


def _watch_updates() -> None:
    """Note which state of the model a step updates, and protect it from empty batches.

    Such state, for example the moving statistics of BatchNormalization, has no
    aggregation in Keras 3, so each replica keeps its own. `agree` averages it.
    """
    original = core.Variable._direct_assign

    def _direct_assign(self: Any, value: Any) -> None:
        step = current_step()
        if step is not None:
            value = step.update(self, value)
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
