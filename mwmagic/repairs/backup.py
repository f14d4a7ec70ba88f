# ruff: noqa: ANN401, SLF001 - Keras has no annotations, and its defects are in its private parts
"""One backup for all workers, and how a training that resumes gets to the same point in its data.

The chief writes and reads the backup, and the others get it from there. A note holds what the
weights do not, to resume in mid-epoch. Its name contains the version of the weights, and the file
of the weights has the same number as a mark. So after a fault a note is never matched with weights
that it does not belong to.
"""

from __future__ import annotations

import io
import json
import random
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import astuple, dataclass
from dataclasses import replace as replaced
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from mwmagic.hooks import divides_batches, is_chief, of_chief, scratch
from mwmagic.recovery.task.updates import committed, count_from

from .parts import (
    BackupAndRestore,
    BaseTrainer,
    H5IOStore,
    TensorFlowTrainer,
    TFEpochIterator,
    file_utils,
)
from .repair import Repair, Sign, Use, replace

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["REPAIRS"]

NOT_KNOWN = -1
"""Stands for a number of the data that is not known."""


@dataclass(frozen=True)
class ResumePoint:
    """How far a training has come; all numbers, so that the chief can send them."""

    epoch: int
    """The epoch, by Keras's number."""
    seen: int = 0
    """How many of its batches have been trained on."""
    begun: int = 0
    """How many epochs have begun, this one included."""
    passes: int = 0
    """How many iterators have been made over the data."""
    read: int = 0
    """How many batches have been taken from the latest of them."""
    batches: int = NOT_KNOWN
    """How many batches the data has, or -1 if that is not known."""
    seed: int = NOT_KNOWN
    """The seed of the workers' common order of samples, or -1."""


@dataclass
class Fit:
    """One call of `fit`: its data, and whether a backup restored the metrics' state."""

    data: Any = None
    with_metrics: bool = False

    def point(self, epoch: int, seen: int) -> ResumePoint:
        """Return where this training is."""
        data = self.data
        seed, batches = getattr(data, "_seed", None), data._num_batches
        return ResumePoint(
            epoch,
            seen,
            data._begun,
            data._passes,
            data._steps_seen,
            NOT_KNOWN if batches is None else batches,
            NOT_KNOWN if seed is None else seed,
        )

    def go_to(self, point: ResumePoint) -> None:
        """Advance the data to a point, as if it had been trained on up to there."""
        data = self.data
        _pass_epochs(data, point.begun - 1)
        _pass_iterators(data, point)
        if data._num_batches is None and point.batches != NOT_KNOWN:
            data._num_batches = point.batches
        # Executions are whole; if they have become longer, the last one runs again.
        again = point.seen % data.steps_per_execution
        data._seen, data._ahead = point.seen - again, point.read - again
        if data.steps_per_epoch is not None:  # epochs continue with the previous epoch's iterator
            data._current_iterator = iter(data._get_iterator())
            data._steps_seen = point.read - point.seen


def _pass_epochs(data: Any, epochs: int) -> None:
    """Notify the data of earlier epochs, because a PyDataset may change with each of them."""
    for _ in range(epochs):
        data.data_adapter.on_epoch_begin()
        data.data_adapter.on_epoch_end()
    data._begun += max(epochs, 0)


def _pass_iterators(data: Any, point: ResumePoint) -> None:
    """Make the iterators before the latest, because a dataset reshuffles with each of them."""
    before = point.passes - 1
    data._passes += before
    if getattr(data, "_order", None) is None or point.seed == NOT_KNOWN:
        # This worker's own part if possible, because an iterator over all parts takes long to make.
        dataset = data._distributed_dataset
        for part in getattr(dataset, "_cloned_datasets", [dataset]) * max(before, 0):
            iter(part)
        return
    data._seed, data._order = point.seed, random.Random(point.seed)  # noqa: S311 - for shuffling
    for _ in range(before):
        data._order.getrandbits(31)


_FIT: ContextVar[Fit | None] = ContextVar("fit", default=None)


def current_fit() -> Fit | None:
    """Return the call of `fit` that this code is part of, if it is part of one."""
    return _FIT.get()


def _go_on_in_mid_epoch() -> None:
    """Resume an interrupted epoch at the batch after the last saved one.

    The original stores which batch that was, but restarts the epoch.
    """
    replace(TensorFlowTrainer, "fit", _noting_its_data(TensorFlowTrainer.fit))
    _count_passes()
    _leave_out_what_was_seen()
    _report_what_was_seen()


def _noting_its_data(fit: Any) -> Any:
    def noting(self: Any, *args: Any, **kwargs: Any) -> Any:
        token = _FIT.set(Fit())
        try:
            return fit(self, *args, **kwargs)
        finally:
            _FIT.reset(token)
            if divides_batches(self.distribute_strategy):
                self._initial_epoch = None  # or the next call would begin where this was resumed

    return noting


def _count_passes() -> None:
    """Count the iterators made, and keep the first data that `fit` prepares as its own."""
    start, get_iterator = TFEpochIterator.__init__, TFEpochIterator._get_iterator

    def begin(self: Any, *args: Any, **kwargs: Any) -> None:
        self._begun = self._passes = self._seen = self._ahead = 0
        start(self, *args, **kwargs)
        fit = current_fit()
        if fit is not None and fit.data is None:
            fit.data = self

    def _get_iterator(self: Any) -> Any:
        self._passes += 1
        return get_iterator(self)

    replace(TFEpochIterator, "__init__", begin)
    replace(TFEpochIterator, "_get_iterator", _get_iterator)


def _leave_out_what_was_seen() -> None:
    original = TFEpochIterator._enumerate_iterator

    def _enumerate_iterator(self: Any) -> Iterator[Any]:
        seen, ahead = self._seen, self._ahead
        self._seen = self._ahead = 0
        self._begun += 1
        for begin, end, iterator in original(self):
            if begin == 0 and ahead:
                _read(iterator, ahead)
            if end >= seen:
                yield begin, end, iterator

    replace(TFEpochIterator, "_enumerate_iterator", _enumerate_iterator)


def _read(iterator: Any, batches: int) -> None:
    """Take batches from an iterator and discard them."""

    def take(done: Any) -> tuple[Any]:
        iterator.get_next_as_optional()
        return (done + 1,)

    def read() -> Any:
        return tf.while_loop(lambda done: done < batches, take, (0,))

    # As a concrete function, because TensorFlow warns about tracing many functions.
    tf.function(read, autograph=False).get_concrete_function()()


def _report_what_was_seen() -> None:
    """Report on an epoch of which only the end is left: without a step there are no logs."""
    original = BaseTrainer._get_metrics_result_or_logs

    def _get_metrics_result_or_logs(self: Any, logs: Any) -> Any:
        fit = current_fit()
        if not logs and fit is not None and fit.with_metrics:
            return self.get_metrics_result()
        return original(self, logs)

    replace(BaseTrainer, "_get_metrics_result_or_logs", _get_metrics_result_or_logs)


POINT_FILE = "point-{}.npz"


@dataclass(frozen=True)
class Note:
    """Where a training is, and the state that a file of weights does not hold."""

    version: int
    """That of the weights."""
    point: ResumePoint
    seeds: list[Any]
    metrics: list[Any]
    """The state of random layers, and of the metrics, over all replicas."""

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


def _back_up_on_chief() -> None:
    """Let the other workers write to a temporary directory, and delete nothing."""
    original, on_train_end = BackupAndRestore._save_model, BackupAndRestore.on_train_end

    def _save_model(self: Any) -> None:
        note = _note(self) if divides_batches(self.model.distribute_strategy) else None
        if not is_chief(self.model.distribute_strategy):
            with TemporaryDirectory(dir=scratch()) as directory:
                self.model.save_weights(str(Path(directory) / Path(self._weights_path).name))
            return
        if note is not None:
            # First, so that there is a note for the weights even if a fault comes in between.
            note.write(self.backup_dir)
        with marking(None if note is None else note.version):
            original(self)
        if note is not None:
            _keep_notes(self, note)

    def delete_on_chief(self: Any, logs: Any = None) -> None:
        if is_chief(self.model.distribute_strategy):
            on_train_end(self, logs)

    replace(BackupAndRestore, "_save_model", _save_model)
    replace(BackupAndRestore, "on_train_end", delete_on_chief)
    _keep_marks()


def _note(callback: Any) -> Note | None:
    """Return what to keep beside the weights; call it on every worker."""
    fit = current_fit()
    if fit is None:
        return None
    seen = 0 if callback.save_freq == "epoch" else callback._last_batch_seen + 1
    note = Note.of(callback.model, fit.point(callback._current_epoch, seen))
    # Without an update in between, that counts, two backups would have one name.
    last = getattr(callback, "_noted", None)
    return note if last is None else replaced(note, version=max(note.version, last + 1))


def _keep_notes(callback: Any, note: Note) -> None:
    """Remove the notes on weights that the directory no longer holds."""
    before = getattr(callback, "_noted", None) if callback.double_checkpoint else None
    note.remove_others(callback.backup_dir, {note.version, before})
    callback._noted = note.version


def _restore_from_chief() -> None:
    """Give every worker what the chief has restored.

    Originally each worker restores what it finds. If the directory is not shared,
    or one of them was killed in between, they find different epochs, and the first
    reduction mixes them.
    """
    original, begin_epoch = BackupAndRestore.on_train_begin, BackupAndRestore.on_epoch_begin

    def on_train_begin(self: Any, logs: Any = None) -> None:
        model, note = self.model, None
        if not divides_batches(model.distribute_strategy) or not model.built:
            original(self, logs)
            return
        _forget_earlier(self)
        chief = is_chief(model.distribute_strategy)
        found = chief and file_utils.exists(self._weights_path)
        if chief:
            _drop_half_written(self._training_metadata_path)
            with marking() as mark:
                original(self, logs)
            note = _noted(self, mark.number) if found else None
            self._noted = note.version if note else None
        _follow(self, found, note)

    def on_epoch_begin(self: Any, epoch: int, logs: Any = None) -> None:
        if not divides_batches(self.model.distribute_strategy):
            begin_epoch(self, epoch, logs)
            return
        # The original counts epochs from 0 in each process.
        self._current_epoch = epoch
        set_metric_state(self.model, self.__dict__.pop("_metrics", []))

    replace(BackupAndRestore, "on_train_begin", on_train_begin)
    replace(BackupAndRestore, "on_epoch_begin", on_epoch_begin)


def _forget_earlier(callback: Any) -> None:
    """Forget an earlier `fit` of this callback, which an error may have ended elsewhere than here.

    Workers that count differently would save, and reduce, in different batches.
    """
    callback._batches_seen_since_last_saving = callback._last_batch_seen = 0
    callback.__dict__.pop("_metrics", None)


def _noted(callback: Any, version: int | None) -> Note | None:
    """Return the note on the weights that were restored, and count their updates on from there."""
    if version is None:  # Keras alone has written them, or an earlier mwmagic
        version = iterations(callback.model)
    count_from(version)
    return Note.read(callback.backup_dir, callback.model, version)


def _drop_half_written(path: str) -> None:
    """Remove a file that a fault cut short, since it would cause a fault on every restart."""
    if file_utils.exists(path):
        with file_utils.File(path, "r") as metadata:
            text = metadata.read()
        try:
            json.loads(text)
        except ValueError:
            file_utils.remove(path)


def _follow(callback: Any, found: bool, note: Note | None) -> None:
    """Resume where the chief does, with its weights and optimizer state, if it found a backup."""
    model = callback.model
    strategy = model.distribute_strategy
    mine = note.point if note else ResumePoint(model._initial_epoch or 0)
    noted = note is not None and len(note.metrics) > 0
    told = of_chief(strategy, [int(found), int(noted), *astuple(mine)])
    restored, with_metrics, *numbers = map(int, told)
    if not restored:
        return
    point = ResumePoint(*numbers)
    model._initial_epoch = point.epoch
    _share_variables(model, note.seeds if note else [])
    if point.seen and (fit := current_fit()):
        fit.go_to(point)
        callback._last_batch_seen = point.seen - 1
        if with_metrics:
            own = note.metrics if note else no_metric_state(model)
            callback._metrics = of_chief(strategy, own)
            fit.with_metrics = True


def _share_variables(model: Any, seeds: list[Any]) -> None:
    strategy = model.distribute_strategy
    with strategy.scope():
        if model.optimizer is not None and not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)
        for variable, value in zip(seed_state(model), seeds, strict=False):
            variable.assign(value)
    variables = _saved_variables(model)
    for variable, value in zip(variables, of_chief(strategy, variables), strict=True):
        variable.assign(tf.cast(value, variable.dtype))


def _saved_variables(model: Any) -> list[Any]:
    """Return what a backup holds: everything but the metrics' state."""
    metrics = {id(variable) for variable in all_metric_variables(model)}
    own = [variable for variable in model.variables if id(variable) not in metrics]
    return own + (model.optimizer.variables if model.optimizer is not None else [])


VERSION_ATTRIBUTE = "mwmagic_version"


@dataclass
class Marked:
    """What the files of weights say that are written, or said that were read; None is nothing."""

    number: int | None = None


_MARK: ContextVar[Marked | None] = ContextVar("mark", default=None)


@contextmanager
def marking(number: int | None = None) -> Iterator[Marked]:
    """Mark the files of weights that are written from now on, and note what those read say."""
    mark = Marked(number)
    token = _MARK.set(mark)
    try:
        yield mark
    finally:
        _MARK.reset(token)


def _keep_marks() -> None:
    """Let files of weights have marks.

    They are written before the file gets its name, so that no fault comes in between.
    """
    original = H5IOStore.close

    def close(self: Any) -> None:
        mark = _MARK.get()
        if mark is not None and self.mode == "r":
            found = self.h5_file.attrs.get(VERSION_ATTRIBUTE)
            mark.number = None if found is None else int(found)
        elif mark is not None and mark.number is not None:
            self.h5_file.attrs[VERSION_ATTRIBUTE] = mark.number
        original(self)

    replace(H5IOStore, "close", close)


REPAIRS = (
    Repair(
        "BackupAndRestore",
        "callbacks/backup_and_restore.py#L164",
        (
            Sign(
                BackupAndRestore,
                "_save_model",
                "self.model.save_weights(filepath=self._weights_path",
            ),
            Sign(BackupAndRestore, "on_train_end", "file_utils.rmtree(self.backup_dir)"),
            Sign(H5IOStore, "close", "self.h5_file.close()"),
        ),
        _back_up_on_chief,
        uses=(Use(BackupAndRestore, "set_model"),),
    ),
    Repair(
        "BackupAndRestore: restoring",
        "callbacks/backup_and_restore.py#L113",
        (
            Sign(BackupAndRestore, "on_train_begin", "self._load_model()"),
            Sign(BackupAndRestore, "on_epoch_end", "self._current_epoch = epoch + 1"),
            Sign(BackupAndRestore, "on_epoch_begin"),
        ),
        _restore_from_chief,
        uses=(Use(BackupAndRestore, "set_model"),),
    ),
    Repair(
        "BackupAndRestore: resuming at a batch",
        "callbacks/backup_and_restore.py#L130",
        (
            Sign(
                BackupAndRestore,
                "_load_model",
                'epoch = training_metadata["epoch"]',
                lacks='training_metadata["batch"]',
            ),
            Sign(TensorFlowTrainer, "fit", "epoch_iterator = TFEpochIterator("),
            Sign(TFEpochIterator, "__init__", "experimental_distribute_dataset("),
            Sign(TFEpochIterator, "_get_iterator", "return self._distributed_dataset"),
            Sign(TFEpochIterator, "_enumerate_iterator", "yield "),
            Sign(BaseTrainer, "_get_metrics_result_or_logs", "return logs"),
        ),
        _go_on_in_mid_epoch,
        uses=(Use(BackupAndRestore, "set_model"),),
    ),
)
