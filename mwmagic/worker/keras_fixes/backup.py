# ruff: noqa: ANN401, SLF001 - Keras has no annotations, and its defects are in its private parts
"""One backup for all workers: the chief writes and reads it, and tells the others."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import tensorflow as tf
from keras.src.callbacks import BackupAndRestore
from keras.src.utils import file_utils

from mwmagic.worker.keras_fixes.cluster import is_chief, of_chief, spans_workers
from mwmagic.worker.keras_fixes.repair import Repair, replace, says

__all__ = ["REPAIRS"]


def _backs_up_everywhere() -> bool:
    return says(BackupAndRestore._save_model, "self.model.save_weights(filepath=self._weights_path")


def _back_up_on_chief() -> None:
    """Let the others write their backup to a directory that goes away, and delete nothing."""
    original, on_train_end = BackupAndRestore._save_model, BackupAndRestore.on_train_end

    def _save_model(self: Any) -> None:
        if is_chief(self.model.distribute_strategy):
            original(self)
            return
        with TemporaryDirectory() as directory:
            self.model.save_weights(str(Path(directory) / Path(self._weights_path).name))

    def delete_on_chief(self: Any, logs: Any = None) -> None:
        if is_chief(self.model.distribute_strategy):
            on_train_end(self, logs)

    replace(BackupAndRestore, "_save_model", _save_model)
    replace(BackupAndRestore, "on_train_end", delete_on_chief)


def _restores_alone() -> bool:
    return says(BackupAndRestore.on_train_begin, "self._load_model()")


def _restore_from_chief() -> None:
    """Give every worker what the chief has restored.

    In the original each worker restores what it finds. Where the directory is
    not shared, or one of them was killed in between, that is another epoch,
    and the first reduction mixes the two.
    """
    original = BackupAndRestore.on_train_begin

    def on_train_begin(self: Any, logs: Any = None) -> None:
        model = self.model
        if not spans_workers(model.distribute_strategy) or not model.built:
            original(self, logs)
            return
        chief = is_chief(model.distribute_strategy)
        found = chief and file_utils.exists(self._weights_path)
        if chief:
            original(self, logs)
        _follow(model, found)

    replace(BackupAndRestore, "on_train_begin", on_train_begin)


def _follow(model: Any, found: bool) -> None:
    """Make this worker's epoch, weights and optimizer those of the chief, if it found a backup."""
    strategy = model.distribute_strategy
    restored, epoch = of_chief(strategy, [int(found), model._initial_epoch or 0])
    if not int(restored):
        return
    model._initial_epoch = int(epoch)
    with strategy.scope():
        if model.optimizer is not None and not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)
    variables = _saved_variables(model)
    for variable, value in zip(variables, of_chief(strategy, variables), strict=True):
        variable.assign(tf.cast(value, variable.dtype))


def _saved_variables(model: Any) -> list[Any]:
    """Return what a backup holds: everything but the metrics' state, which starts anew."""
    metrics = {id(variable) for metric in model.metrics for variable in metric.variables}
    own = [variable for variable in model.variables if id(variable) not in metrics]
    return own + (model.optimizer.variables if model.optimizer is not None else [])


REPAIRS = (
    Repair("BackupAndRestore", "", _backs_up_everywhere, _back_up_on_chief),
    Repair("restoring", "", _restores_alone, _restore_from_chief),
)
