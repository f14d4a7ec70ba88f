# ruff: noqa: ANN401, SLF001 - Keras has no annotations, and its parts are private
"""Metrics that the user's code updates: from sums over the replicas, or from the whole batch.

Keras keeps the state of a metric on each replica, and adds the replicas' states up to read it.
That is right for sums over samples. A maximum, a mean of means, a count of batches or a state
in a `tf.Variable` are not sums, so each replica updates such a metric from the samples of all.
"""

from __future__ import annotations

import warnings
from contextlib import ExitStack, contextmanager
from types import MethodType
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
from tensorflow.python.distribute.values import MirroredVariable, SyncOnReadVariable

from mwmagic.model.variables import ANNOUNCED

from .parts import CompileMetrics, StatelessScope, tree
from .repair import KerasRefused
from .step import current_step, outside_steps

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .step import Step

__all__ = ["alike", "gathered", "leaves", "watched"]

# An argument with more numbers than this for each sample (an image with a probability for each of
# four classes at each of 512 x 512 points) is not sent to all replicas.
SAMPLE_LIMIT = 1_048_576
LARGE = (
    ANNOUNCED + "the metric {name} mixes the samples of a batch, and its arguments are too large "
    "to be sent to all {n} replicas in each step. Each replica updates it from its own samples, so "
    "its value may differ from that in one process. Let update_state only add sums over samples, "
    "as in self.total.assign_add(ops.sum(values))."
)
UNSHARED = (
    "the metric {name} keeps a tf.Variable that was created outside strategy.scope(), which the "
    "{n} replicas of this worker would all update. Create it with self.add_variable(...) or inside "
    "`with strategy.scope():`."
)
STILL = {"Placeholder", "Assert"}
# A metric is tried with so many samples, of which so many are the first part, and with so many
# values along other dimensions that are not known.
SAMPLES, FIRST, OTHERS = 7, 3, 4


def alike(metric: Any) -> bool:
    """Return whether each replica holds a metric's whole state, as it sees all samples."""
    return vars(metric).get(ALIKE, False)  # type: ignore[no-any-return]


ALIKE = "_mwmagic_alike"


def leaves(metrics: Any) -> Iterator[Any]:
    """Return the metrics within metrics."""
    for metric in metrics:
        if isinstance(metric, CompileMetrics):
            yield from leaves(metric.metrics)
        else:
            yield metric


@contextmanager
def watched(model: Any) -> Iterator[None]:
    """Let a model's metrics that the user's code updates see what they need in what follows."""
    with ExitStack() as stack:
        for metric in model.metrics:
            if isinstance(metric, CompileMetrics) and not metric.built:
                stack.enter_context(_replaced(metric, "build", _building(model, stack)))
        for metric in leaves(model.metrics):
            _watch(model, metric, stack)
        yield


def _watch(model: Any, metric: Any, stack: ExitStack) -> None:
    if _is_own(metric):
        stack.enter_context(_replaced(metric, "update_state", _updating(model)))


@contextmanager
def _replaced(one: Any, name: str, function: Any) -> Iterator[None]:
    """Replace a method of one object for a while."""
    setattr(one, name, MethodType(function, one))
    try:
        yield
    finally:
        delattr(one, name)


def _building(model: Any, stack: ExitStack) -> Any:
    """Return what makes metrics of what `compile` was given, and watches them from then on."""

    def build(self: Any, *args: Any) -> None:
        CompileMetrics.build(self, *args)
        for metric in self.metrics:
            _watch(model, metric, stack)

    return build


def _is_own(metric: Any) -> bool:
    """Return whether not only Keras's code updates a metric."""
    function = getattr(metric, "_fn", None)
    updates = [type(metric).update_state, *([] if function is None else [function])]
    names = [getattr(each, "__module__", None) or "" for each in updates]
    return "update_state" not in vars(metric) and not all(n.startswith("keras.") for n in names)


def _updating(model: Any) -> Any:
    """Return what updates a metric, from all replicas' samples unless it is a sum over samples."""

    def update_state(self: Any, *args: Any, **kwargs: Any) -> Any:
        update, step = type(self).update_state, current_step()
        given = Given(args, kwargs)
        if not alike(self) and (model.run_eagerly or not _adds_up(self, given)):
            if given.size <= SAMPLE_LIMIT:
                _keep_alike(self)
            elif step is not None:
                n = tf.distribute.get_strategy().num_replicas_in_sync
                warnings.warn(LARGE.format(name=self.name, n=n), stacklevel=2)
        if step is None and model.run_eagerly:
            return None  # only the model is being built, from symbols that such code may not take
        if step is None or not alike(self):
            return update(self, *args, **kwargs)
        given = given.mapped(lambda value: _whole(step, given, value))
        step.updated.metrics.add(id(self))
        with outside_steps():
            return update(self, *given.args, **given.kwargs)

    return update_state


class Given:
    """The arguments of an update, and which of them have a value for each sample."""

    def __init__(self, args: Any, kwargs: Any) -> None:
        self.args, self.kwargs = args, kwargs
        self.tensors = [v for v in tree.flatten((args, kwargs)) if tf.is_tensor(v)]
        first = [t.shape[0] for t in self.tensors if t.shape.rank]
        self._first = None if None in first else next(iter(first), None)

    def is_batch(self, tensor: Any) -> bool:
        """Return whether a tensor has a value for each sample."""
        return bool(tensor.shape.rank) and tensor.shape[0] == self._first

    @property
    def size(self) -> int:
        """How many numbers they have for each sample."""
        shapes = [t.shape[1:] for t in self.tensors if self.is_batch(t)]
        return sum(shape.num_elements() or 1 for shape in shapes)

    def mapped(self, function: Any) -> Given:
        """Return them with what a function makes of their tensors."""
        return Given(
            *tree.map_structure(
                lambda v: function(v) if tf.is_tensor(v) else v, (self.args, self.kwargs)
            )
        )


# Whether a metric's state is a sum.


def _adds_up(metric: Any, given: Given) -> bool:
    """Return whether the states that parts of a batch lead to add up to that of the batch.

    It is tried with made-up samples, unless updating has other effects. Code that has collectives
    of its own knows of the replicas.
    """
    variables = metric.variables
    if not variables or _others(metric) or any(v.aggregation != "sum" for v in variables):
        return False
    try:
        with outside_steps(), tf.init_scope():
            update = _traced(metric, given)
            stateful = {op.type for op in update.graph.get_operations() if op._is_stateful}
            if not stateful <= STILL:
                return any(kind.startswith("Collective") for kind in stateful)
            return _tried(update, variables, given)
    except Exception:  # noqa: BLE001 - the user's code may fail in any way with what is made up
        return False


def _traced(metric: Any, given: Given) -> Any:
    """Return the function from a metric's state and tensors to the state that they lead to."""

    def update(state: list[Any], tensors: list[Any]) -> list[Any]:
        each = iter(tensors)
        made_up = given.mapped(lambda _: next(each))
        with StatelessScope(list(zip(metric.variables, state, strict=True))) as scope:
            type(metric).update_state(metric, *made_up.args, **made_up.kwargs)
        return [tf.convert_to_tensor(scope.get_current_value(v)) for v in metric.variables]

    def spec(tensor: Any) -> Any:
        batch = given.is_batch(tensor)
        return tf.TensorSpec([None, *tensor.shape[1:]] if batch else tensor.shape, tensor.dtype)

    state = [tf.TensorSpec(v.shape, v.dtype) for v in metric.variables]
    plain = tf.autograph.experimental.do_not_convert(update)
    return tf.function(plain).get_concrete_function(state, [spec(t) for t in given.tensors])


def _tried(update: Any, variables: list[Any], given: Given) -> bool:
    drawn = np.random.default_rng(3)
    samples = [_made_up(drawn, tensor) for tensor in given.tensors]
    batches = [given.is_batch(tensor) for tensor in given.tensors]

    def added(before: float, at: slice) -> list[Any]:
        """Return what some of the samples add to a state."""
        state = [tf.cast(tf.fill(v.shape, before), v.dtype) for v in variables]
        part = [s[at] if batch else s for s, batch in zip(samples, batches, strict=True)]
        after = update(state, [tf.convert_to_tensor(each) for each in part])
        return [a.numpy() - b.numpy() for a, b in zip(after, state, strict=True)]

    whole, later = added(0.0, slice(None)), added(7.0, slice(None))  # which no maximum exceeds
    sums = [later]
    if any(batches):
        parts = zip(added(0.0, slice(FIRST)), added(7.0, slice(FIRST, None)), strict=True)
        sums.append([a + b for a, b in parts])
    return all(np.any(each) for each in whole) and all(
        np.allclose(a, b, rtol=1e-4, atol=1e-5)
        for each in sums
        for a, b in zip(whole, each, strict=True)
    )


def _made_up(drawn: Any, tensor: Any) -> Any:
    """Return small numbers in the shape and type of an argument."""
    shape = [SAMPLES, *tensor.shape[1:]] if tensor.shape.rank else []
    shape = [OTHERS if size is None else size for size in shape]
    dtype = tensor.dtype.as_numpy_dtype
    if tensor.dtype.is_floating:
        return drawn.uniform(size=shape).astype(dtype)
    return drawn.integers(0, 2, shape).astype(dtype)


# The whole batch.


def _keep_alike(metric: Any) -> None:
    """Let reading a metric's state take this replica's, and not the sum of all replicas'."""
    if alike(metric):
        return
    vars(metric)[ALIKE] = True
    strategy = tf.distribute.get_strategy()
    for variable in metric.variables:
        variable._aggregation = "only_first_replica"
        _read_first(variable._value)
    for variable in _others(metric):
        _read_first(variable)
        shared = not isinstance(variable, tf.distribute.DistributedValues)
        if shared and len(strategy.extended.worker_devices) > 1:
            n = len(strategy.extended.worker_devices)
            raise KerasRefused(UNSHARED.format(name=metric.name, n=n))


def _read_first(variable: Any) -> None:
    """Let each replica assign to its part of a variable, and read that part."""
    if isinstance(variable, MirroredVariable):
        # Assigning to such a one in a replica wants a reduction. The two differ in methods only.
        variable.__class__ = SyncOnReadVariable
    if isinstance(variable, tf.distribute.DistributedValues):
        variable._aggregation = tf.VariableAggregation.ONLY_FIRST_REPLICA


def _others(metric: Any) -> list[Any]:
    """Return the TensorFlow variables that a metric has beside Keras's."""
    values = tree.flatten([value for name, value in vars(metric).items() if name[:2] != "__"])
    return [value for value in values if isinstance(value, tf.Variable)]


def _whole(step: Step, given: Given, value: Any) -> Any:
    """Return what all replicas gave for an argument; a single number counts as a mean."""
    key = id(tf.compat.v1.get_default_graph()), id(value)
    if key not in step.whole:
        step.whole[key] = value, _of_all(step, given, value)  # the value, so that its id is its own
    return step.whole[key][1]


def _of_all(step: Step, given: Given, value: Any) -> Any:
    if given.is_batch(value):
        found = gathered(value)
        mask = getattr(value, "_keras_mask", None)
        if mask is not None:
            found._keras_mask = gathered(mask)
        return found
    if value.shape.rank or not value.dtype.is_floating:
        return value
    share = tf.cast(step.share(), value.dtype)
    part = tf.where(share > 0, value * share, tf.zeros_like(value))
    return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, part)


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
