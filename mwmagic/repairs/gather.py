# ruff: noqa: ANN401 - TensorFlow has no annotations
"""What all replicas have of a batch, one replica's after the other's, whatever its type."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

__all__ = ["gathered"]

# What TensorFlow's collectives carry, and what carries the rest.
PLAIN = (tf.float16, tf.float32, tf.float64, tf.int32, tf.int64)
WIDE = (tf.uint32, tf.uint64)


def gathered(value: Any) -> Any:
    """Return the samples of all replicas, in order; call it in replica context."""
    if isinstance(value, tf.RaggedTensor):
        outer, *inner = value.nested_row_lengths()
        lengths = [gathered(outer), *map(_gathered_if_any, inner)]
        flat = _gathered_if_any(value.flat_values)
        return tf.RaggedTensor.from_nested_row_lengths(flat, lengths, validate=False)
    if isinstance(value, tf.SparseTensor):
        return _gathered_sparse(value)
    if 0 in value.shape[1:]:
        return tf.zeros([tf.reduce_sum(_sizes(value)), *value.shape[1:]], value.dtype)
    if value.dtype == tf.string:
        return _gathered_strings(value)
    if value.dtype.is_complex:
        parts = gathered(tf.stack([tf.math.real(value), tf.math.imag(value)], axis=-1))
        return tf.complex(parts[..., 0], parts[..., 1])
    carried = tf.identity(tf.cast(value, _carrier(value.dtype)))  # an argument has no device yet
    whole = tf.cast(_all_gathered(carried), value.dtype)
    return tf.ensure_shape(whole, [None, *value.shape[1:]])


def _all_gathered(value: Any) -> Any:
    """Gather what a collective carries.

    A batch is dealt to the first device of each worker, then to the second of each; the
    collective returns what all the devices of one worker have, then the next worker's.
    """
    context = tf.distribute.get_replica_context()
    whole = context.all_gather(value, axis=0)
    if len(context.strategy.extended.worker_devices) == 1:
        return whole
    sizes = context.all_gather(tf.shape(value)[:1], axis=0)
    parts = tf.RaggedTensor.from_row_lengths(whole, sizes, validate=False)
    return tf.gather(parts, _dealt(context.strategy)).values


def _dealt(strategy: Any) -> list[int]:
    """Return the replicas in the order in which they get the samples of a batch."""
    devices = len(strategy.extended.worker_devices)
    replicas = range(strategy.num_replicas_in_sync)
    return [replica for device in range(devices) for replica in replicas[device::devices]]


def _sizes(value: Any) -> Any:
    """Return how many samples each replica has."""
    return _all_gathered(tf.shape(value)[:1])


def _gathered_if_any(value: Any) -> Any:
    """Gather what no replica may have any of, of which a collective would crash."""
    one_more = tf.concat([value, tf.zeros([1, *value.shape[1:]], value.dtype)], axis=0)
    parts = tf.RaggedTensor.from_row_lengths(gathered(one_more), _sizes(one_more), validate=False)
    return parts[:, :-1].values


def _carrier(dtype: Any) -> Any:
    """Return the type that carries numbers of another through a collective."""
    if dtype in PLAIN:
        return dtype
    if dtype.is_floating:
        return tf.float32
    return tf.int64 if dtype in WIDE else tf.int32


def _gathered_strings(value: Any) -> Any:
    """Gather strings as numbers: their bytes, with one more at each end, and how many these are."""
    flat = tf.reshape(value, [-1])
    codes = tf.io.decode_raw(tf.strings.reduce_join(flat + b"\0"), tf.uint8)
    lengths = gathered(tf.strings.length(flat)) + 1
    every = tf.constant([bytes([code]) for code in range(256)])
    count = tf.size(lengths)
    joined = tf.strings.unsorted_segment_join(
        tf.gather(every, tf.cast(gathered(codes), tf.int32)),
        tf.repeat(tf.range(count), lengths),
        count,
    )
    whole = tf.strings.substr(joined, tf.zeros_like(lengths), lengths - 1)
    return tf.reshape(whole, [-1, *value.shape[1:]])


def _gathered_sparse(value: Any) -> Any:
    """Gather a sparse tensor's entries, each replica's below those of the replicas before."""
    shapes = gathered(value.dense_shape[tf.newaxis])
    context = tf.distribute.get_replica_context()
    places = tf.argsort(_dealt(context.strategy))  # a permutation's inverse
    before = tf.reduce_sum(shapes[: places[context.replica_id_in_sync_group], 0])
    down = tf.concat([[before], tf.zeros_like(value.dense_shape[1:])], axis=0)
    whole = tf.concat([[tf.reduce_sum(shapes[:, 0])], shapes[0, 1:]], axis=0)
    return tf.SparseTensor(
        _gathered_if_any(value.indices + down), _gathered_if_any(value.values), whole
    )
