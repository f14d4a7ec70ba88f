# ruff: noqa: ANN401, SLF001 - Keras has no annotations, and its defects are in its private parts
"""One backup for all workers: the chief writes and reads it, and tells the others."""

from __future__ import annotations

import json
from dataclasses import astuple
from dataclasses import replace as replaced
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import tensorflow as tf

from .cluster import divides_batches, is_chief, of_chief
from .commit import count_from
from .mark import keep_marks, marking
from .note import (
    Note,
    all_metric_variables,
    iterations,
    no_metric_state,
    seed_state,
    set_metric_state,
)
from .parts import BackupAndRestore, H5IOStore, file_utils
from .repair import Repair, Sign, replace
from .resume import ResumePoint, current_fit
from .scratch import scratch
from .use import Use

__all__ = ["REPAIRS"]


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
    keep_marks()


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
)
