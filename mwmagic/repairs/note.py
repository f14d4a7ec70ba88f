# ruff: noqa: ANN401 - Keras has no annotations
"""What a backup needs besides the weights to resume in mid-epoch.

Its name contains the version of the weights, which their file says too. So after a fault a
note is never matched with weights that it does not belong to.
"""

from __future__ import annotations

import io
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from .commit import committed
from .parts import file_utils
from .resume import ResumePoint

__all__ = [
    "Note",
    "all_metric_variables",
    "iterations",
    "no_metric_state",
    "seed_state",
    "set_metric_state",
]

POINT_FILE = "point-{}.npz"


@dataclass(frozen=True)
class Note:
    """Where a training is, and the state that a file of weights does not hold.

    Parameters
    ----------
    version : int
        That of the weights.
    point : ResumePoint
        Where the training is.
    seeds, metrics : list of array
        The state of random layers, and of the metrics, over all replicas.
    """

    version: int
    point: ResumePoint
    seeds: list[Any]
    metrics: list[Any]

    @classmethod
    def of(cls, model: Any, point: ResumePoint) -> Note:
        """Return a note on a model at a point of its training; call it on every worker."""
        seeds = [variable.numpy() for variable in seed_state(model)]
        metrics = metric_state(model) if point.seen else []
        return cls(_version(model), point, seeds, metrics)

    @classmethod
    def read(cls, directory: str, model: Any, version: int) -> Note | None:
        """Return the note on a version of a model's weights, or None if there is none."""
        path = file_utils.join(directory, POINT_FILE.format(version))
        if not file_utils.exists(path):
            return None
        with tf.io.gfile.GFile(path, "rb") as file, np.load(io.BytesIO(file.read())) as saved:
            arrays = dict(saved)
        point = ResumePoint(*map(int, arrays["point"]))
        seeds, metrics = (
            [arrays[f"{kind}/{i}"] for i in range(len(arrays)) if f"{kind}/{i}" in arrays]
            for kind in ("seed", "metric")
        )
        fits = list(map(np.shape, metrics)) == [v.shape for v in _metric_variables(model)]
        return cls(version, point, seeds, metrics if fits else [])

    def write(self, directory: str) -> None:
        """Write to a backup's directory, atomically."""
        arrays = {"point": np.array(astuple(self.point))}
        for kind, values in (("seed", self.seeds), ("metric", self.metrics)):
            arrays.update({f"{kind}/{i}": value for i, value in enumerate(values)})
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)  # type: ignore[arg-type]
        path = file_utils.join(directory, POINT_FILE.format(self.version))
        tf.io.gfile.makedirs(directory)
        with tf.io.gfile.GFile(f"{path}.draft", "wb") as file:
            file.write(buffer.getvalue())
        tf.io.gfile.rename(f"{path}.draft", path, overwrite=True)

    def remove_others(self, directory: str, versions: set[int | None]) -> None:
        """Remove the notes on all versions but these."""
        kept = {POINT_FILE.format(version) for version in versions}
        for name in file_utils.listdir(directory):
            if name.startswith(POINT_FILE.partition("{")[0]) and name not in kept:
                file_utils.remove(file_utils.join(directory, name))


def _version(model: Any) -> int:
    """Return the number of whole updates that a model's weights hold.

    `optimizer.iterations` is no such number after an update that was cut short, or where a step
    has several optimizers. It serves where nothing counts whole updates: in programs, which write
    nothing once a step has failed.
    """
    done = committed()
    return iterations(model) if done is None else done


def iterations(model: Any) -> int:
    """Return how many updates a model's optimizer has begun; 0 if it has none."""
    return int(model.optimizer.iterations.numpy()) if model.optimizer is not None else 0


def seed_state(model: Any) -> list[Any]:
    """Return the state of a model's random layers, which no file of weights holds."""
    known = {id(variable) for variable in (*model.weights, *all_metric_variables(model))}
    return [variable for variable in model.variables if id(variable) not in known]


def all_metric_variables(model: Any) -> list[Any]:
    """Return the state of a model's metrics, whether or not it can be summed."""
    return [variable for metric in model.metrics for variable in metric.variables]


def _metric_variables(model: Any) -> list[Any]:
    """Return the variables of all metrics, if it is known how to combine them."""
    variables = all_metric_variables(model)
    return variables if all(v.aggregation != "none" for v in variables) else []


def metric_state(model: Any) -> list[Any]:
    """Return the metrics' state over all replicas; call it on every worker."""
    return [tf.convert_to_tensor(variable) for variable in _metric_variables(model)]


def no_metric_state(model: Any) -> list[Any]:
    """Return zeros in the shape of the metrics' state."""
    return [tf.zeros(variable.shape, variable.dtype) for variable in _metric_variables(model)]


def set_metric_state(model: Any, values: list[Any]) -> None:
    """Give the metrics the state that all replicas had together."""
    if not values:
        return
    strategy = model.distribute_strategy

    def replica() -> None:
        first = tf.distribute.get_replica_context().replica_id_in_sync_group == 0
        for variable, value in zip(_metric_variables(model), values, strict=True):
            total = tf.cast(value, variable.dtype)
            if variable.aggregation == "sum":
                total = tf.where(first, total, tf.zeros_like(total))
            variable.assign(total)

    tf.function(lambda: strategy.run(replica), autograph=False)()
