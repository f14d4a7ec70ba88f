# ruff: noqa: ANN401, SLF001 - Keras has no annotations, and its defects are in its private parts
"""What the workers make equal after each execution: logs and the model's state.

Everything travels in one reduction, because the number of round trips dominates on a
network.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import tensorflow as tf

from mwmagic.hooks import add_up, divides_batches, first_local, in_one_of_several_replicas
from mwmagic.model.variables import ANNOUNCED
from mwmagic.recovery.task.updates import note_mean

from .metrics import gathered, leaves
from .parts import (
    BackendVariable,
    BaseTrainer,
    BatchNormalization,
    StatelessScope,
    tree,
)
from .repair import Repair, Sign, Use, is_from_keras, replace
from .step import Step, Updated, current_step

__all__ = ["REPAIRS", "agree", "as_logs", "local_mean", "point_out_separate_state"]

# A metric with more numbers than this (a confusion matrix of 256 classes) is averaged over the
# workers while an epoch runs, instead of being computed from all of them. Its value at the end of
# the epoch is exact either way: Keras reads it from every worker.
METRIC_STATE_LIMIT = 65_536
SUMMED = {"sum", "mean"}
NUMBERS = (bool, int, float, complex, str, bytes, np.generic, np.ndarray)
SEPARATE = (
    ANNOUNCED + "{path} is state that each worker updates from its own samples, and nothing says "
    "how to combine it, so each keeps its own. Create it with add_weight(..., aggregation='mean') "
    "if it is a mean over samples, with aggregation='sum' if it counts them with assign_add, or "
    "with aggregation='only_first_replica' if that is what you mean."
)


def agree(model: Any, outputs: Any, weight: Any, updated: Updated) -> tuple[Any, Any]:
    """Make the model's state and the logs equal on all replicas."""
    strategy = model.distribute_strategy
    replicas = strategy.num_replicas_in_sync

    def replica(outputs: Any, weight: Any) -> Any:
        known = _moving_means(model)
        states = [v for key, v in updated.state.items() if key in known]
        metrics = _exact_metrics(model, outputs, updated)
        variables = [v for metric in metrics for v in metric.variables]
        variables = [v for v in variables if v.aggregation in SUMMED]
        means = [True] * len(states) + [v.aggregation == "mean" for v in variables]
        logs = [_weighted(log, weight) for log in tree.flatten(outputs) if _is_log(log)]
        shared = [tf.convert_to_tensor(v) for v in (*states, *variables)]
        for state in states:
            note_mean(state)
        *sums, moment, whole = add_up([*shared, *logs, _moment(replicas), weight])
        averages = iter(sums[len(shared) :])
        shared = [s / replicas if mean else s for s, mean in zip(sums, means, strict=False)]
        with tf.control_dependencies(sums):  # or one that another type has would cut these short
            for state, value in zip(states, shared, strict=False):
                state.assign(value)
        outputs = tree.map_structure(
            lambda v: _average(next(averages), whole, v) if _is_log(v) else v, outputs
        )
        values = zip(variables, shared[len(states) :], strict=True)
        with StatelessScope(state_mapping=list(values)):
            return _with_results(outputs, _results(metrics)), _numbers(metrics, moment, updated)

    logs, numbers = strategy.run(replica, args=(outputs, weight))
    return first_local(strategy, logs), first_local(strategy, numbers)


def _moment(replicas: int) -> Any:
    """Return a replica's part of a time that is the same on all, in seconds of the last hour.

    In float32 it travels with the metrics, and a whole day would leave it no milliseconds.
    """
    return tf.cast(tf.math.floormod(tf.timestamp(), 3600.0) / replicas, tf.float32)


def _numbers(metrics: list[Any], moment: Any, updated: Updated) -> Any:
    """Return the numbers in metrics' state, in one tensor: reading each takes a round trip."""
    numbers = [v for metric in metrics for v in metric.variables if v.ndim == 0]
    updated.sums = 0, *map(id, numbers)
    found = [tf.convert_to_tensor(v) for v in numbers]
    return tf.stack([tf.cast(each, tf.float64) for each in (moment, *found)])


def point_out_separate_state(model: Any, updated: Updated) -> None:
    """Warn of the first state that is not averaged, unless Keras's own layers hold it.

    A moving mean that a user's layer keeps should be averaged, and a queue of features
    should not, but nothing in a variable without an aggregation says which of them it is.
    """
    if not updated.state:
        return
    layers = [layer for layer in model._flatten_layers() if is_from_keras(layer)]
    known = {id(v) for layer in layers for v in _own(layer)} | _moving_means(model)
    doubtful = [v for key, v in updated.state.items() if key not in known]
    if doubtful:
        warnings.warn(SEPARATE.format(path=doubtful[0].path), stacklevel=2)


def _moving_means(model: Any) -> set[int]:
    """Return the identities of state that is known to be a mean over the samples."""
    layers = [la for la in model._flatten_layers() if isinstance(la, BatchNormalization)]
    return {id(variable) for layer in layers for variable in _own(layer)}


def _own(layer: Any) -> list[Any]:
    """Return the variables that are a layer's own, and not those of layers in it."""
    return [*layer._trainable_variables, *layer._non_trainable_variables]


def _exact_metrics(model: Any, logs: Any, updated: Updated) -> list[Any]:
    """Return the metrics that a step has updated and logged, and whose state can be summed."""
    names = _names(logs)
    return [
        metric
        for metric in model.metrics
        if any(id(v) in updated.metrics for v in (*metric.variables, *leaves([metric])))
        and all(v.aggregation in {*SUMMED, "only_first_replica"} for v in metric.variables)
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
        result = tree.map_structure(_as_tensor, metric.result())
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


def local_mean(strategy: Any, outputs: Any, weight: Any) -> tuple[Any, Any]:
    """Return this worker's outputs of a step, and their weight.

    Logs are means over its replicas; what cannot be averaged is the first replica's.
    """
    weights = strategy.experimental_local_results(weight)
    whole = tf.add_n(weights)

    def local(value: Any) -> Any:
        values = strategy.experimental_local_results(value)
        if len(values) == 1 or not _is_log(values[0]):
            return values[0]
        total = tf.add_n([_weighted(v, w) for v, w in zip(values, weights, strict=True)])
        return _average(total, whole, values[0])

    return tree.map_structure(local, outputs), whole


def as_logs(outputs: Any, step: Step) -> Any:
    """Return what a step returns as `tf.function` would, with the samples of all replicas."""
    return tree.map_structure(lambda value: _as_log(value, step), outputs)


def _as_log(value: Any, step: Step) -> Any:
    value = tf.convert_to_tensor(value) if isinstance(value, NUMBERS) else _as_tensor(value)
    if not tf.is_tensor(value) or not value.shape.rank or tf.executing_eagerly():
        return value
    return gathered(value) if value.shape[0] == step.size else value


def _as_tensor(value: Any) -> Any:
    """Read a variable, Keras's or TensorFlow's."""
    return (
        tf.convert_to_tensor(value) if isinstance(value, (tf.Variable, BackendVariable)) else value
    )


def _is_log(value: Any) -> bool:
    """Return whether an average of a value over the replicas is one of numbers of one shape."""
    if not isinstance(value, tf.Tensor) or not value.shape.is_fully_defined():
        return False
    return bool(value.dtype.is_floating or value.dtype.is_integer or value.dtype.is_bool)


def _weighted(log: Any, weight: Any) -> Any:
    """Return a replica's part of an average; without samples, a log may be 0 / 0."""
    exact = not log.dtype.is_floating or log.dtype.size > tf.float32.size
    dtype = tf.float64 if exact else tf.float32
    return tf.where(weight > 0, tf.cast(log, dtype) * tf.cast(weight, dtype), 0)


def _average(total: Any, weight: Any, log: Any) -> Any:
    """Return an average in the type of a replica's own log, if that is not one of integers."""
    average = tf.math.divide_no_nan(total, tf.cast(weight, total.dtype))
    return tf.cast(average, log.dtype) if log.dtype.is_floating else average


def _read_results() -> None:
    """Read the variable that a metric's result may be, on all workers at once.

    A callback, or the report of the fit, would read it on one worker alone, or that worker's part.
    """
    original = BaseTrainer.get_metrics_result

    def get_metrics_result(self: Any) -> Any:
        results = original(self)
        if not divides_batches(self.distribute_strategy):
            return results
        return tree.map_structure(_as_tensor, results)

    replace(BaseTrainer, "get_metrics_result", get_metrics_result)


def _watch_updates() -> None:
    """Note which state of the model a step updates, and protect it from empty batches.

    Such state, for example the moving statistics of BatchNormalization, has no
    aggregation in Keras 3, so each replica keeps its own. `agree` averages those that are
    known to be means.
    """
    original = BackendVariable._direct_assign

    def _direct_assign(self: Any, value: Any) -> None:
        step = current_step()
        if step is not None:
            value = step.update(self, value)
        original(self, value)

    replace(BackendVariable, "_direct_assign", _direct_assign)


def _add_increments_alone() -> None:
    """Add up what the replicas add to a variable of `aggregation="sum"`, and not its old value.

    The original assigns the old value plus an increment on each replica, and TensorFlow adds
    up what they assign. So the old value counts once for each replica, and the variable grows
    exponentially.
    """
    add, subtract = BackendVariable.assign_add, BackendVariable.assign_sub

    def assign_add(self: Any, value: Any) -> Any:
        return self.assign(_only_on_the_first(self) + value) if _sums(self) else add(self, value)

    def assign_sub(self: Any, value: Any) -> Any:
        if not _sums(self):
            return subtract(self, value)
        return self.assign(_only_on_the_first(self) - value)

    replace(BackendVariable, "assign_add", assign_add)
    replace(BackendVariable, "assign_sub", assign_sub)


def _sums(variable: Any) -> bool:
    """Return whether TensorFlow adds up what the replicas assign to a variable, here and now."""
    return _adds_up(variable) and in_one_of_several_replicas()


def _adds_up(variable: Any) -> bool:
    each_its_own = variable.synchronization == "on_read"  # as metrics do
    return variable.aggregation == "sum" and not each_its_own


def _is_added_to(strategy: Any, variable: Any, *_args: Any, **_kwargs: Any) -> bool:
    return _adds_up(variable) and divides_batches(strategy)


def _only_on_the_first(variable: Any) -> Any:
    """Return a variable's value on the first replica, and 0 on the others."""
    value = tf.convert_to_tensor(variable)
    first = tf.distribute.get_replica_context().replica_id_in_sync_group == 0
    return tf.where(first, value, tf.zeros_like(value))


REPAIRS = (
    Repair(
        "state that adds up",
        "backend/common/variables.py#L300",
        (
            Sign(BackendVariable, "assign_add", "return self.assign(self + value)"),
            Sign(BackendVariable, "assign_sub", "return self.assign(self - value)"),
        ),
        _add_increments_alone,
        uses=tuple(
            Use(BackendVariable, name, _is_added_to) for name in ("assign_add", "assign_sub")
        ),
    ),
    Repair(
        "BatchNormalization statistics",
        "backend/tensorflow/core.py#L70",
        (Sign(BackendVariable, "_direct_assign", "self._value.assign(tf.cast(value,"),),
        _watch_updates,
    ),
    Repair(
        "metrics whose result is a variable",
        "trainers/trainer.py#L529",
        (Sign(BaseTrainer, "get_metrics_result", "result = metric.result()"),),
        _read_results,
    ),
)
