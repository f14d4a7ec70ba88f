# ruff: noqa: ANN401, SLF001 - Keras has no annotations, and its defects are in its private parts
"""All repairs, and the one line that tells of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from keras.src.backend.tensorflow.trainer import TFEpochIterator
from keras.src.utils import traceback_utils

from mwmagic.worker.keras_fixes import (
    agreement,
    backup,
    callbacks,
    data,
    execution,
    fit,
    gradients,
    losses,
    refusals,
    regularization,
    saving,
    scope,
)
from mwmagic.worker.keras_fixes.cluster import spans_workers
from mwmagic.worker.keras_fixes.repair import KerasRefused, replace

if TYPE_CHECKING:
    from collections.abc import Callable

    from mwmagic.worker.keras_fixes.repair import Repair

__all__ = ["REPAIRS", "apply"]

# Keras 3's minor versions that the tests run with.
FIRST_COVERED, LAST_COVERED = 13, 15

REPAIRS: tuple[Repair, ...] = (
    *fit.REPAIRS,
    *execution.REPAIRS,
    *agreement.REPAIRS,
    *losses.REPAIRS,
    *regularization.REPAIRS,
    *gradients.REPAIRS,
    *data.REPAIRS,
    *scope.REPAIRS,
    *saving.REPAIRS,
    *callbacks.REPAIRS,
    *backup.REPAIRS,
    *refusals.REPAIRS,
)


def apply(version: str, announce: Callable[[str], None]) -> None:
    """Apply the repairs that the installed Keras needs.

    A Keras older than those that the tests cover is refused at its first use
    under several workers: it has some of the defects in other code, and to
    repair the rest would give numbers that look right and are not.

    Parameters
    ----------
    version : str
        Keras's version.
    announce : callable
        Called with one line when data first meets a multi-worker strategy.
    """
    if _minor(version) < FIRST_COVERED:
        _at_first_use(lambda: _refuse(version))
        return
    needed = [repair for repair in REPAIRS if _is_needed(repair)]
    for repair in needed:
        repair.apply()
    _leave_tracebacks_to_the_user()
    if needed:
        _at_first_use(lambda: announce(_line(version, needed)))


def _refuse(version: str) -> None:
    raise KerasRefused(
        f"Keras {version} does not work under MultiWorkerMirroredStrategy, and mwmagic repairs "
        f"Keras 3.{FIRST_COVERED} and later: pip install -U keras (it runs with TensorFlow 2.16 "
        "and later), or use tf-keras with --keras legacy. --keras plain leaves it as it is."
    )


def _is_needed(repair: Repair) -> bool:
    try:
        return repair.defective()
    except AttributeError:
        return False  # another Keras, without the function that is defective here


def _line(version: str, needed: list[Repair]) -> str:
    line = (
        f"mwmagic: Keras {version} under MultiWorkerMirroredStrategy: "
        f"repaired {', '.join(map(str, needed))}; --keras plain turns this off"
    )
    if _minor(version) <= LAST_COVERED:
        return line
    return f"{line}. mwmagic's tests cover Keras up to 3.{LAST_COVERED}; this one is newer"


def _leave_tracebacks_to_the_user() -> None:
    """Leave the repairs' frames out of tracebacks, as Keras leaves out its own."""
    here = str(Path(__file__).parent)
    if here not in traceback_utils._EXCLUDED_PATHS:
        traceback_utils._EXCLUDED_PATHS += (here,)


def _minor(version: str) -> int:
    return int(version.split(".")[1])


def _at_first_use(tell: Callable[[], None]) -> None:
    """Call `tell` once, when `fit`, `evaluate` or `predict` first has several workers."""
    original, untold = TFEpochIterator.__init__, [tell]

    def begin(self: Any, distribute_strategy: Any = None, *args: Any, **kwargs: Any) -> None:
        if spans_workers(distribute_strategy) and untold:
            untold[0]()
            untold.clear()
        original(self, distribute_strategy, *args, **kwargs)

    replace(TFEpochIterator, "__init__", begin)
