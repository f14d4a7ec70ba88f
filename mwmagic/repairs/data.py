# ruff: noqa: ANN401, SLF001 - Keras has no annotations, and its defects are in its private parts
# ruff: noqa: S311 - random numbers are for shuffling
"""Which samples each worker gets.

Every worker runs the whole input pipeline and keeps its share of each batch
(TensorFlow's `AutoShardPolicy.DATA`), so all must see the same batches.
"""

from __future__ import annotations

import random
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.python.eager import context

from mwmagic.hooks import divides_batches, of_chief, spans_workers
from mwmagic.model.variables import ANNOUNCED

from .parts import (
    ArrayDataAdapter,
    GeneratorDataAdapter,
    Model,
    PyDatasetAdapter,
    TensorFlowTrainer,
    TFDatasetAdapter,
    TFEpochIterator,
    tree,
)
from .repair import Repair, Sign, Use, replace
from .step import OWN_SIZES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["REPAIRS", "stays_on_host"]

# What the chief sends instead of a seed if the user has set one.
SEEDED = -1
# Operations that run Python code within a dataset.
PYTHON = {"EagerPyFunc", "PyFunc", "PyFuncStateless"}
POLICY = tf.data.experimental.AutoShardPolicy
# How batches are read where no other device is to get them.
ON_HOST = tf.distribute.InputOptions(
    experimental_fetch_to_device=False,
    experimental_replication_mode=tf.distribute.InputReplicationMode.PER_REPLICA,
)


def _read_alike() -> None:
    """Copy what Python code yields before it is divided, and let no loaders read ahead.

    Keras gives TensorFlow the user's own arrays, and each worker's loaders would be at another
    place (see `_copied` and `_use_no_loaders`).
    """
    start, get_iterator = TFEpochIterator.__init__, TFEpochIterator._get_iterator

    def begin(
        self: Any, distribute_strategy: Any = None, x: Any = None, *args: Any, **kwargs: Any
    ) -> None:
        divided = divides_batches(distribute_strategy)
        x = _copied(x) if divided and _runs_python(x) else x
        start(self, distribute_strategy, x, *args, **kwargs)
        self._seed = self._order = None
        self._own_sizes = divided and _may_differ(x)
        if spans_workers(distribute_strategy):
            _use_no_loaders(self)
            _point_out(self.data_adapter, distribute_strategy.num_replicas_in_sync)
        if divided and isinstance(self.data_adapter, (GeneratorDataAdapter, PyDatasetAdapter)):
            _distribute(self, _copied(self.data_adapter.get_tf_dataset()))
        elif divided and not isinstance(x, tf.distribute.DistributedDataset):
            _leave_on_host(self._distributed_dataset, distribute_strategy)

    def _get_iterator(self: Any) -> Any:
        dataset = get_iterator(self)
        return _OwnSizes(dataset) if self._own_sizes else dataset

    replace(TFEpochIterator, "__init__", begin)
    replace(TFEpochIterator, "_get_iterator", _get_iterator)


def _shuffle_arrays_alike() -> None:
    """Shuffle arrays in the same order on all workers.

    Without `keras.utils.set_random_seed` each worker shuffles in its own order and
    keeps its share of that, so in an epoch some samples are used twice and others never.
    From 3.16 on, Keras's own order depends on nothing but the epoch.
    """
    _order_alike(ArrayDataAdapter, _seed_of_arrays, _arrays_in_order)


def _shuffle_py_datasets_alike() -> None:
    """Shuffle a `PyDataset` in the same order on all workers, as arrays are."""
    _order_alike(PyDatasetAdapter, _seed_of_py_dataset, _py_dataset_in_order)


def _order_alike(
    kind: Any, own_seed: Callable[[Any], int | None], in_order: Callable[[Any, int], Any]
) -> None:
    """Have the chief choose the order of the data of one kind, for each epoch another."""
    start, get_iterator = TFEpochIterator.__init__, TFEpochIterator._get_iterator

    def begin(self: Any, *args: Any, **kwargs: Any) -> None:
        start(self, *args, **kwargs)
        if isinstance(self.data_adapter, kind) and spans_workers(self._distribute_strategy):
            self._seed = _common_seed(own_seed(self.data_adapter), self._distribute_strategy)
            self._order = None if self._seed is None else random.Random(self._seed)

    def _get_iterator(self: Any) -> Any:
        if isinstance(self.data_adapter, kind) and self._order is not None:
            _distribute(self, in_order(self.data_adapter, self._order.getrandbits(31)))
        return get_iterator(self)

    replace(TFEpochIterator, "__init__", begin)
    replace(TFEpochIterator, "_get_iterator", _get_iterator)


def _may_differ(x: Any) -> bool:
    """Return whether workers may have batches of other sizes than this one."""
    if not isinstance(x, tf.data.Dataset):
        return isinstance(x, tf.distribute.DistributedDataset)
    return bool(_policy(x) == POLICY.OFF)


def _policy(dataset: Any) -> Any:
    """Return how a `tf.data` pipeline is divided among the workers."""
    return dataset.options().experimental_distribute.auto_shard_policy


class _OwnSizes:
    """A dataset whose iterators say that its element spec is this worker's own."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __iter__(self) -> Any:
        iterator = iter(self._dataset)
        vars(iterator)[OWN_SIZES] = True
        return iterator


def _distribute(epochs: Any, dataset: Any) -> None:
    strategy = epochs._distribute_strategy
    epochs._distributed_dataset = strategy.experimental_distribute_dataset(dataset)
    _leave_on_host(epochs._distributed_dataset, strategy)


def _leave_on_host(dataset: Any, strategy: Any) -> None:
    """Let a worker whose only device is its CPU read the data where it is.

    For every epoch TensorFlow would make and trace a second pipeline that brings the data to the
    device, where it already is. That takes longer than a step.
    """
    devices = [tf.DeviceSpec.from_string(name) for name in strategy.extended.worker_devices]
    if [device.device_type for device in devices] == ["CPU"]:
        dataset._options = ON_HOST


def stays_on_host(iterator: Any) -> bool:
    """Return whether an iterator leaves the data where it is; to a graph, its type is the same."""
    return getattr(iterator, "_options", None) is ON_HOST


def _use_no_loaders(epochs: Any) -> None:
    """Read a PyDataset in the worker itself.

    Its loader threads and processes keep what they have read ahead for the next epoch.
    How much that is depends on timing, so it would differ between workers.
    """
    adapter = epochs.data_adapter
    if isinstance(adapter, PyDatasetAdapter) and adapter.enqueuer is not None:
        adapter.enqueuer = None
        warnings.warn(
            f"{ANNOUNCED}this PyDataset's loader workers are not used, because what they read "
            "ahead differs between tasks. The task itself reads the batches.",
            stacklevel=2,
        )


def _copied(dataset: Any) -> Any:
    """Copy what Python code yields, before it is divided among the workers.

    TensorFlow uses a generator's arrays without copying them. It keeps operations from
    writing into them, but not into the slices that a batch is divided into, so a layer
    like Rescaling would change the user's own data.
    """

    def copy(*batch: Any) -> Any:
        copies = tf.nest.map_structure(_copy, batch, expand_composites=True)
        return copies if isinstance(dataset.element_spec, tuple) else copies[0]

    return dataset.map(copy)


def _copy(value: Any) -> Any:
    if value is None or not value.dtype.is_numpy_compatible or value.dtype == tf.string:
        return value
    return tf.raw_ops.DeepCopy(x=value)


def _runs_python(dataset: Any) -> bool:
    """Return whether Python code produces a dataset's elements, as with `from_generator`."""
    if not isinstance(dataset, tf.data.Dataset):
        return False
    functions = [function for stage in _stages(dataset) for function in stage._functions()]
    graphs = [function.function.graph.as_graph_def() for function in functions]
    nodes = [node for graph in graphs for node in graph.node]
    nodes += [node for graph in graphs for part in graph.library.function for node in part.node_def]
    return any(node.op in PYTHON for node in nodes)


def _stages(dataset: Any) -> list[Any]:
    """Return a dataset and all its inputs."""
    stages = [dataset]
    for stage in stages:
        stages.extend(stage._inputs())
    return stages


def _shuffles(kind: Any, attribute: str) -> Callable[..., bool]:
    """Return what says whether several workers shuffle data of a kind; see `Use`."""

    def shuffles(_strategy: Any, epochs: Any) -> bool:
        adapter = epochs.data_adapter
        shuffled = isinstance(adapter, kind) and getattr(adapter, attribute, True)
        return bool(shuffled) and spans_workers(epochs._distribute_strategy)

    return shuffles


def _common_seed(mine: int | None, strategy: Any) -> int | None:
    """Return the seed for shuffling on all workers, or None if Keras's own way will do."""
    if mine is None:
        return None
    seed = int(of_chief(strategy, [mine])[0])
    return None if seed == SEEDED else seed


def _seed_of_arrays(adapter: Any) -> int | None:
    if not adapter._shuffle:
        return None
    return SEEDED if context.global_seed() is not None else random.SystemRandom().getrandbits(31)


def _seed_of_py_dataset(adapter: Any) -> int | None:
    return random.getrandbits(31) if adapter.shuffle and adapter.num_batches else None


def _arrays_in_order(adapter: Any, seed: int) -> Any:
    """Return a dataset for one epoch, in the order that a seed gives.

    In a TensorFlow graph, an order that depends on a seed is the same in every epoch,
    so each epoch gets its own graph.
    """
    with _seeded(seed):
        return adapter.get_tf_dataset()


def _py_dataset_in_order(adapter: Any, seed: int) -> Any:
    adapter._get_iterator = lambda: _shuffled(adapter, seed)
    return _copied(adapter.get_tf_dataset())


def _shuffled(adapter: Any, seed: int) -> Iterator[Any]:
    """Yield a PyDataset's batches; one generator for each pass, whatever thread runs it."""
    order = list(range(adapter.num_batches))
    random.Random(seed).shuffle(order)
    for i in order:
        yield adapter._standardize_batch(adapter.py_dataset[i])


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Set TensorFlow's seed, which is not set otherwise, within a block."""
    context.set_global_seed(seed)
    try:
        yield
    finally:
        context.set_global_seed(None)


def _point_out(adapter: Any, replicas: int) -> None:
    if isinstance(adapter, (GeneratorDataAdapter, PyDatasetAdapter)):
        kind = "generator" if isinstance(adapter, GeneratorDataAdapter) else "PyDataset"
        warnings.warn(
            f"{ANNOUNCED}every worker runs this {kind}, and each of the {replicas} replicas trains "
            "on its share of every batch. All workers must therefore produce the same batches in "
            "the same order: seed whatever shuffles them.",
            stacklevel=2,
        )
    elif isinstance(adapter, TFDatasetAdapter) and _shuffles_without_seed(adapter._dataset):
        warnings.warn(
            f"{ANNOUNCED}this dataset shuffles without a seed, so every worker shuffles in a "
            "different order, and in an epoch some samples are used twice and others never. Give "
            "shuffle() a seed, or call keras.utils.set_random_seed() first.",
            stacklevel=2,
        )


def _shuffles_without_seed(dataset: Any) -> bool:
    """Return whether a finite tf.data pipeline shuffles differently on each worker."""
    if not isinstance(dataset, tf.data.Dataset) or int(dataset.cardinality()) < 0:
        return False
    if _policy(dataset) == POLICY.OFF:
        return False
    shuffles = [stage for stage in _stages(dataset) if type(stage).__name__ == "_ShuffleDataset"]
    return any(int(stage._seed) == int(stage._seed2) == 0 for stage in shuffles)


def _predict_by_sample() -> None:
    """Divide every batch among the workers in `predict`.

    A dataset that reads files is divided by file if there are enough of them, and the
    predictions then come in a different order from the samples.
    """
    original = TensorFlowTrainer.predict

    def predict(self: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
        if spans_workers(self.distribute_strategy) and isinstance(x, tf.data.Dataset):
            x = _by_sample(x)
        return original(self, x, *args, **kwargs)

    replace(TensorFlowTrainer, "predict", predict)


def _predicts_a_dataset(
    strategy: Any, _model: Any, x: Any = None, *_args: Any, **_kwargs: Any
) -> bool:
    return isinstance(x, tf.data.Dataset) and spans_workers(strategy)


def _by_sample(dataset: Any) -> Any:
    if _policy(dataset) not in {POLICY.AUTO, POLICY.FILE}:
        return dataset
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = POLICY.DATA
    return dataset.with_options(options)


def _predict_a_batch_once() -> None:
    """Return the predictions of one batch once.

    Each replica predicts the whole batch, and the original returns all their results
    concatenated.
    """
    original = TensorFlowTrainer.predict_on_batch

    def predict_on_batch(self: Any, x: Any) -> Any:
        outputs, strategy = original(self, x), self.distribute_strategy
        if not divides_batches(strategy):
            return outputs
        return tree.map_structure(lambda output: _own_part(output, strategy), outputs)

    replace(TensorFlowTrainer, "predict_on_batch", predict_on_batch)


def _own_part(output: Any, strategy: Any) -> Any:
    """Return the part of an output that this worker's first replica produced."""
    size = output.shape[0] // strategy.num_replicas_in_sync
    first = strategy.extended._id_in_cluster * strategy.extended._num_devices_per_worker
    return output[first * size : (first + 1) * size]


ITERATOR = (
    Sign(TFEpochIterator, "__init__", "experimental_distribute_dataset("),
    Sign(TFEpochIterator, "_get_iterator", "return self._distributed_dataset"),
)
REPAIRS = (
    Repair(
        "data that Python code yields",
        "backend/tensorflow/trainer.py#L748",
        ITERATOR,
        _read_alike,
    ),
    Repair(
        "shuffled arrays",
        "trainers/data_adapters/array_data_adapter.py#L107",
        (
            Sign(ArrayDataAdapter, "get_tf_dataset", "indices = tf.random.shuffle(indices)"),
            *ITERATOR,
        ),
        _shuffle_arrays_alike,
        cured=(
            Sign(ArrayDataAdapter, "get_tf_dataset", "indices = self._tf_shuffle(indices)"),
            Sign(
                ArrayDataAdapter, "_tf_shuffle", "tf.stack([tf.convert_to_tensor(self._epoch), 0]"
            ),
        ),
        uses=(Use(TFEpochIterator, "_get_iterator", _shuffles(ArrayDataAdapter, "_shuffle")),),
    ),
    Repair(
        "a shuffled PyDataset",
        "trainers/data_adapters/py_dataset_adapter.py#L257",
        (Sign(PyDatasetAdapter, "_finite_generator", "random.shuffle(indices)"), *ITERATOR),
        _shuffle_py_datasets_alike,
        cured=(
            Sign(
                PyDatasetAdapter, "_finite_generator", "random.Random(self._epoch).shuffle(indices)"
            ),
        ),
        uses=(Use(TFEpochIterator, "_get_iterator", _shuffles(PyDatasetAdapter, "shuffle")),),
    ),
    Repair(
        "predict in order",
        "backend/tensorflow/trainer.py#L522",
        (Sign(TensorFlowTrainer, "predict", "epoch_iterator = TFEpochIterator("),),
        _predict_by_sample,
        uses=(Use(Model, "predict", _predicts_a_dataset),),
    ),
    Repair(
        "predict_on_batch",
        "backend/tensorflow/trainer.py#L658",
        (Sign(TensorFlowTrainer, "predict_on_batch", "self.predict_function([(x,)])"),),
        _predict_a_batch_once,
        uses=(Use(Model, "predict_on_batch"),),
    ),
)
