# ruff: noqa: ANN401, SLF001 - Keras has no annotations, and its defects are in its private parts
"""How far a training has come in its data, and how another process gets to the same point."""

from __future__ import annotations

import random
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from mwmagic.hooks import divides_batches

from .parts import BackupAndRestore, BaseTrainer, TensorFlowTrainer, TFEpochIterator
from .repair import Repair, Sign, Use, replace

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["REPAIRS", "Fit", "ResumePoint", "current_fit"]

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


REPAIRS = (
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
