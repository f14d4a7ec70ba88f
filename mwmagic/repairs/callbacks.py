# ruff: noqa: ANN401, SLF001 - Keras has no annotations, and its defects are in its private parts
"""Callbacks that write: all workers run them, only the chief leaves files behind.

The others run them too, because whatever a model reads or reduces on the way has to
happen on every worker.
"""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import tensorflow as tf

from .cluster import is_chief
from .parts import CSVLogger, ModelCheckpoint, RemoteMonitor, TensorBoard
from .repair import Repair, Sign, replace
from .scratch import scratch
from .use import Use, over_workers

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
)
