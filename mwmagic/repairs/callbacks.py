# ruff: noqa: ANN401, SLF001 - Keras has no annotations, and its defects are in its private parts
"""Callbacks: one worker writes for all, and one that stops training stops all of them.

All workers run the callbacks that write, because whatever a model reads or reduces on the way has
to happen on every worker, but only the chief leaves files behind. A callback that cannot be
repaired from outside is refused before training. A worker that sets `stop_training` stops all of
them at the same batch.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from keras import callbacks

from mwmagic.hooks import (
    VOTE_SECONDS,
    add_up,
    first_local,
    is_chief,
    scratch,
    spans_workers,
)

from .parts import (
    Callback,
    CallbackList,
    CSVLogger,
    History,
    LambdaCallback,
    ModelCheckpoint,
    ProgbarLogger,
    RemoteMonitor,
    TensorBoard,
    TensorFlowTrainer,
    is_default,
)
from .repair import Absence, KerasRefused, Repair, Sign, Use, is_from_keras, over_workers, replace

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["REPAIRS"]


def _writes(callback: Any) -> bool:
    """Return whether a callback is on the worker that writes, or in a single process."""
    return is_chief(callback.model.distribute_strategy)


def _checkpoint_on_chief() -> None:
    """Let the other workers write their checkpoint to a temporary directory."""
    original = ModelCheckpoint._save_model

    def _save_model(self: Any, *args: Any, **kwargs: Any) -> None:
        if _writes(self):
            original(self, *args, **kwargs)
            return
        kept = self.filepath
        with TemporaryDirectory(dir=scratch()) as directory:
            self.filepath = str(Path(directory) / Path(kept).name)
            try:
                original(self, *args, **kwargs)
            finally:
                self.filepath = kept

    replace(ModelCheckpoint, "_save_model", _save_model)


def _log_on_chief() -> None:
    """Let the other workers write their rows to the null device."""
    original = CSVLogger.on_train_begin

    def on_train_begin(self: Any, logs: Any = None) -> None:
        kept = self.filename
        if not _writes(self):
            self.filename = os.devnull
        try:
            original(self, logs)
        finally:
            self.filename = kept

    replace(CSVLogger, "on_train_begin", on_train_begin)


def _summarise_on_chief() -> None:
    """Give the other workers writers that discard everything; they neither profile nor project."""
    set_model = TensorBoard.set_model

    def writer(name: str) -> property:
        original = getattr(TensorBoard, name).fget

        def either(self: Any) -> Any:
            return original(self) if _writes(self) else tf.summary.create_noop_writer()

        return property(either)

    def on_chief(self: Any, model: Any) -> None:
        if not is_chief(model.distribute_strategy):
            self._should_trace = False
            self.embeddings_freq = 0
        set_model(self, model)

    TensorBoard._train_writer, TensorBoard._val_writer = (
        writer("_train_writer"),
        writer("_val_writer"),
    )
    replace(TensorBoard, "set_model", on_chief)


def _post_on_chief() -> None:
    """Let the chief alone send an epoch's logs."""
    original = RemoteMonitor.on_epoch_end

    def on_epoch_end(self: Any, epoch: int, logs: Any = None) -> None:
        if _writes(self):
            original(self, epoch, logs)

    replace(RemoteMonitor, "on_epoch_end", on_epoch_end)


def _refuse_orbax() -> None:
    """Refuse a checkpoint whose library coordinates writing between JAX processes only.

    Under TensorFlow every worker believes that it is the first, and all of them write to
    the same directory at once.
    """

    def set_model(self: Any, model: Any) -> None:
        if spans_workers(model.distribute_strategy):
            raise KerasRefused(
                "OrbaxCheckpoint does not know about other TensorFlow workers, so all would "
                "write to its directory at once. Use ModelCheckpoint or BackupAndRestore (Keras 2, "
                "with --keras legacy, has no OrbaxCheckpoint either)."
            )
        Callback.set_model(self, model)

    replace(callbacks.OrbaxCheckpoint, "set_model", set_model)


BATCH = ("on_batch_begin", "on_batch_end", "on_train_batch_begin", "on_train_batch_end")
# The attribute of a list of callbacks that holds what its workers have agreed on.
ATTRIBUTE = "_mwmagic_decision"
# The attribute of a strategy that holds the traced sum with which its workers ask each other.
SUM = "_mwmagic_sum"


@dataclass(frozen=True)
class Decision:
    """How the workers of one `fit` decide whether to stop."""

    any_worker: Callable[[bool], bool]
    """Takes whether this worker wants something and returns whether any does; it is called on every
    worker."""
    in_epochs: bool
    in_batches: bool
    """Whether any worker has a callback that may stop at an epoch, or at a batch."""

    @classmethod
    def of(cls, callbacks: Any, strategy: Any) -> Decision:
        """Return that of a list of callbacks; call it on every worker."""
        any_worker = _any_worker(strategy)
        given = _given(callbacks)
        return cls(any_worker, any_worker(bool(given)), any_worker(any(map(_has_own, given))))


def _given(callbacks: Any) -> list[Any]:
    """Return the callbacks of a list that the user gave."""
    return [c for c in callbacks.callbacks if not isinstance(c, (History, ProgbarLogger))]


def _may_stop(_strategy: Any, callbacks: Any, *_args: Any, **_kwargs: Any) -> bool:
    strategy = getattr(callbacks.model, "distribute_strategy", None)
    return spans_workers(strategy) and bool(_given(callbacks))


def _any_worker(strategy: Any) -> Callable[[bool], bool]:
    if SUM not in vars(strategy):
        vars(strategy)[SUM] = _sum(strategy)
    total, own = vars(strategy)[SUM], vars(strategy)

    def any_worker(wish: bool) -> bool:
        began = time.monotonic()
        votes = int(total(tf.constant(int(wish), tf.int64)))
        own[VOTE_SECONDS] = own.get(VOTE_SECONDS, 0.0) + time.monotonic() - began
        return votes > 0

    return any_worker


def _sum(strategy: Any) -> Any:
    """Return a function that adds up an integer of each replica; tracing it takes a while."""

    def replica(wish: Any) -> Any:
        return add_up([wish])[0]

    def total_of(wish: Any) -> Any:
        return first_local(strategy, strategy.run(replica, args=(wish,)))

    traced = tf.function(total_of, autograph=False)
    return traced.get_concrete_function(tf.TensorSpec((), tf.int64))


def _has_own(callback: Any) -> bool:
    """Return whether a callback does something of its user's at a batch.

    Keras's own decide by the logs, which are the same on all workers.
    """
    users = isinstance(callback, LambdaCallback) or not is_from_keras(callback)
    return users and not all(is_default(getattr(callback, name)) for name in BATCH)


def _stop_together() -> None:
    """Stop all workers where a callback of any of them sets `stop_training`.

    In the original, the worker leaves its loop alone, and the others wait for it in their
    next step. The workers ask each other only if one of them has callbacks that may stop:
    at each epoch, and at each batch if such a callback is not Keras's own.
    """
    begin = CallbackList.on_train_begin

    def on_train_begin(self: Any, logs: Any = None) -> None:
        begin(self, logs)
        strategy = getattr(self.model, "distribute_strategy", None)
        several = spans_workers(strategy)
        vars(self)[ATTRIBUTE] = Decision.of(self, strategy) if several else None
        _decide(self)

    replace(CallbackList, "on_train_begin", on_train_begin)
    replace(CallbackList, "on_epoch_begin", _deciding(CallbackList.on_epoch_begin))
    replace(CallbackList, "on_epoch_end", _deciding(CallbackList.on_epoch_end))
    replace(
        CallbackList,
        "on_train_batch_end",
        _deciding(CallbackList.on_train_batch_end, at_batch=True),
    )


def _deciding(original: Callable[..., None], at_batch: bool = False) -> Callable[..., None]:
    def deciding(self: Any, number: int, logs: Any = None) -> None:
        original(self, number, logs)
        _decide(self, at_batch)

    return deciding


def _decide(callbacks: Any, at_batch: bool = False) -> None:
    decision = vars(callbacks).get(ATTRIBUTE)
    if decision is not None and (decision.in_batches if at_batch else decision.in_epochs):
        model = callbacks.model
        model.stop_training = decision.any_worker(bool(model.stop_training))


REPAIRS = (
    Repair(
        "ModelCheckpoint",
        "tensorflow/tensorflow#38635",
        (Sign(ModelCheckpoint, "_save_model", "self.model.save(filepath, overwrite=True)"),),
        _checkpoint_on_chief,
        uses=(Use(ModelCheckpoint, "set_model", over_workers),),
    ),
    Repair(
        "CSVLogger",
        "callbacks/csv_logger.py#L42",
        (
            Sign(
                CSVLogger,
                "on_train_begin",
                "self.csv_file = file_utils.File(self.filename, mode)",
            ),
        ),
        _log_on_chief,
        uses=(Use(CSVLogger, "set_model", over_workers),),
    ),
    Repair(
        "TensorBoard",
        "callbacks/tensorboard.py#L235",
        (
            Sign(TensorBoard, "_train_writer", "self.summary.create_file_writer(self._train_dir)"),
            Sign(TensorBoard, "_val_writer", "self.summary.create_file_writer(self._val_dir)"),
            Sign(TensorBoard, "set_model", "self._configure_embeddings()"),
        ),
        _summarise_on_chief,
        uses=(Use(TensorBoard, "set_model", over_workers),),
    ),
    Repair(
        "RemoteMonitor",
        "callbacks/remote_monitor.py#L54",
        (Sign(RemoteMonitor, "on_epoch_end", "requests.post("),),
        _post_on_chief,
        uses=(Use(RemoteMonitor, "set_model", over_workers),),
    ),
    Repair(
        "OrbaxCheckpoint (refused)",
        "keras-team/keras#21903",
        (Sign(callbacks, "OrbaxCheckpoint"),),
        _refuse_orbax,
        cured=(Absence(callbacks, "OrbaxCheckpoint"),),
    ),
    Repair(
        "`stop_training` on one worker",
        "backend/tensorflow/trainer.py#L315",
        (
            Sign(TensorFlowTrainer, "fit", "if self.stop_training:"),
            Sign(CallbackList, "on_train_begin", "callback.on_train_begin(logs)"),
            Sign(CallbackList, "on_epoch_begin", "callback.on_epoch_begin(epoch, logs)"),
            Sign(CallbackList, "on_epoch_end", "callback.on_epoch_end(epoch, logs)"),
            Sign(CallbackList, "on_train_batch_end", "self._on_train_batch_end(batch, logs)"),
        ),
        _stop_together,
        uses=(Use(CallbackList, "on_train_begin", _may_stop),),
    ),
)
