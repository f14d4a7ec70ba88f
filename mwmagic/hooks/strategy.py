# ruff: noqa: ANN401 - TensorFlow has no annotations
"""Whether the strategy in use has several replicas or workers, and which of them this is.

Also what they add up together, and the folder for what only the chief's copy is kept of.
"""

from __future__ import annotations

import json
import math
import os
from typing import TYPE_CHECKING, Any

from mwmagic.model import variables

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "INPUT_WAIT",
    "METRIC_SUMS",
    "VOTE_SECONDS",
    "add_up",
    "added",
    "divides_batches",
    "first_local",
    "has_several_devices",
    "in_cluster",
    "in_one_of_several_replicas",
    "is_chief",
    "of_chief",
    "scratch",
    "spans_workers",
]

METRIC_SUMS = "_mwmagic_sums"
"""The attribute of a model with the identities of its metrics' variables and, in a tensor, their
state on all replicas after the last training step. The first number is the moment, for which the
identity is 0: all workers have the same."""

INPUT_WAIT = "_mwmagic_input_wait"
"""The attribute of a model with a tensor of how many seconds the steps of the last execution waited
for their batches."""

VOTE_SECONDS = "_mwmagic_vote_seconds"
"""The attribute of a strategy with how long callbacks have waited for those of other workers."""


def divides_batches(strategy: Any) -> bool:
    """Return whether a `tf.distribute` strategy is a MultiWorkerMirroredStrategy of many replicas.

    They may all be in one worker that has several devices. With one replica in all, the same
    class trains like a single process and needs no repair.
    """
    return _is_multi_worker(strategy) and strategy.num_replicas_in_sync > 1


def has_several_devices(strategy: Any, *_args: Any, **_kwargs: Any) -> bool:
    """Return whether this worker has several replicas of a strategy that `divides_batches`."""
    return divides_batches(strategy) and len(strategy.extended.worker_devices) > 1


def in_one_of_several_replicas() -> bool:
    """Return whether this code is run for one replica of a strategy that `divides_batches`."""
    import tensorflow as tf

    in_replica = tf.distribute.get_replica_context() is not None
    return in_replica and divides_batches(tf.distribute.get_strategy())


def spans_workers(strategy: Any) -> bool:
    """Return whether a `tf.distribute` strategy is a MultiWorkerMirroredStrategy over workers.

    The same class works locally when TF_CONFIG names one task or none; there is no other
    worker then that has to do the same.
    """
    # Keras asks the same way.
    return _is_multi_worker(strategy) and strategy.extended._in_multi_worker_mode()  # noqa: SLF001


def _is_multi_worker(strategy: Any) -> bool:
    import tensorflow as tf

    return isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)


def is_chief(strategy: Any) -> bool:
    """Return whether this worker is the one that writes for all."""
    return not spans_workers(strategy) or bool(strategy.extended.should_checkpoint)


def in_cluster() -> bool:
    """Return whether TF_CONFIG names other tasks that run the same code."""
    try:
        cluster = json.loads(os.environ.get("TF_CONFIG") or "{}").get("cluster", {})
    except ValueError:
        return False  # TensorFlow reports what is wrong with it when it reads it
    return sum(len(cluster.get(kind, ())) for kind in ("chief", "worker")) > 1


def first_local(strategy: Any, values: Any) -> Any:
    """Return the values of this worker's first replica from a nest of per-replica values."""
    from keras import tree

    return tree.map_structure(lambda v: strategy.experimental_local_results(v)[0], values)


def add_up(values: list[Any]) -> list[Any]:
    """Return the sums of tensors over all replicas; call it in replica context.

    All tensors of one type travel in one reduction.
    """
    import tensorflow as tf

    sums: list[Any] = [None] * len(values)
    for dtype in dict.fromkeys(value.dtype for value in values):
        chosen = [i for i, value in enumerate(values) if value.dtype == dtype]
        flat = tf.concat([tf.reshape(values[i], [-1]) for i in chosen], axis=0)
        total = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, flat)
        parts = tf.split(total, [math.prod(values[i].shape) for i in chosen])
        for i, part in zip(chosen, parts, strict=True):
            sums[i] = tf.reshape(part, values[i].shape)
    return sums


def added(strategy: Any, values: list[Any]) -> list[Any]:
    """Return the sums of what each worker has; call it on every worker."""
    mine = [_reducible(value) for value in values]
    return _run_once(strategy, lambda: add_up(mine))


def of_chief(strategy: Any, values: list[Any]) -> list[Any]:
    """Return the chief's numbers or variables; call it on every worker.

    Integers arrive as int64, narrow floats as float32.
    """
    import tensorflow as tf

    mine = [_reducible(value) for value in values]

    def replica() -> list[Any]:
        first = tf.distribute.get_replica_context().replica_id_in_sync_group == 0
        return add_up([tf.where(first, value, tf.zeros_like(value)) for value in mine])

    return _run_once(strategy, replica)


def _run_once(strategy: Any, replica: Callable[[], list[Any]]) -> list[Any]:
    """Run a function on every replica, and return this worker's first replica's values."""
    import tensorflow as tf

    # Traced, because TensorFlow warns about an untraced `run`, and called as a concrete
    # function, because it warns about tracing many functions.
    traced = tf.function(lambda: first_local(strategy, strategy.run(replica)), autograph=False)
    return traced.get_concrete_function()()  # type: ignore[no-any-return]


def _reducible(value: Any) -> Any:
    """Cast to a type that every kind of collective communication can add."""
    import tensorflow as tf

    if isinstance(value, int):
        return tf.constant(value, tf.int64)
    value = tf.convert_to_tensor(value)
    if value.dtype in {tf.float32, tf.float64}:
        return value
    return tf.cast(value, tf.float32 if value.dtype.is_floating else tf.int64)


def scratch() -> str | None:
    """Return the folder that the agent removes after this process; None without an agent."""
    folder = os.environ.get(variables.SCRATCH)
    if folder is None:
        return None
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)  # noqa: PTH103 - it is a string
    except OSError:
        return None  # then Python finds one that can be written
    return folder
