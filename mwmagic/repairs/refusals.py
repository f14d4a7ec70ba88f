# ruff: noqa: ANN401 - Keras has no annotations
"""What cannot be repaired from outside, refused before training."""

from __future__ import annotations

from typing import Any

from keras import callbacks

from .cluster import spans_workers
from .parts import Callback
from .repair import Absence, KerasRefused, Repair, Sign, replace

__all__ = ["REPAIRS"]


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


REPAIRS = (
    Repair(
        "OrbaxCheckpoint (refused)",
        "keras-team/keras#21903",
        (Sign(callbacks, "OrbaxCheckpoint"),),
        _refuse_orbax,
        cured=(Absence(callbacks, "OrbaxCheckpoint"),),
    ),
)
