# ruff: noqa: ANN401 - Keras has no annotations
"""Which versions of Keras the repairs are for, and how the others are refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .cluster import spans_workers
from .repair import KerasRefused, replace

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["at_first_use", "is_newer", "is_older", "refuse_moved", "refuse_older"]

# Keras 3's minor versions that the tests run with.
FIRST_COVERED, LAST_COVERED = 13, 15


def is_older(version: str) -> bool:
    """Return whether a Keras 3 is older than those that the tests cover."""
    return _minor(version) < FIRST_COVERED


def is_newer(version: str) -> bool:
    """Return whether a Keras 3 is newer than those that the tests cover."""
    return _minor(version) > LAST_COVERED


def _minor(version: str) -> int:
    return int(version.split(".")[1])


def refuse_older(version: str) -> None:
    """Refuse, at its first use under several workers, a Keras that is too old.

    It has some of the defects in other places, and repairing only the rest would give
    numbers that look right but are not.
    """
    _refuse(
        f"Keras {version} does not work under MultiWorkerMirroredStrategy, and mwmagic repairs "
        f"Keras 3.{FIRST_COVERED} and later: pip install -U keras (it runs with TensorFlow 2.16 "
        "and later), or use tf-keras with --keras legacy. --keras plain leaves it as it is."
    )


def refuse_moved(version: str, missing: ImportError) -> None:
    """Refuse, in the same way, a Keras that no longer has what the repairs replace."""
    _refuse(
        f"mwmagic repairs Keras 3.{FIRST_COVERED} to 3.{LAST_COVERED} under "
        f"MultiWorkerMirroredStrategy, and Keras {version} is different ({missing}): "
        f"pip install 'keras<3.{LAST_COVERED + 1}', or use tf-keras with --keras legacy. "
        "--keras plain leaves it as it is."
    )


def _refuse(text: str) -> None:
    def refuse() -> None:
        raise KerasRefused(text)

    at_first_use(refuse)


def at_first_use(tell: Callable[[], None]) -> None:
    """Call `tell` once, when `fit`, `evaluate` or `predict` first has several workers."""
    from keras.src.backend.tensorflow.trainer import TFEpochIterator

    original, untold = TFEpochIterator.__init__, [tell]

    def begin(self: Any, distribute_strategy: Any = None, *args: Any, **kwargs: Any) -> None:
        if spans_workers(distribute_strategy) and untold:
            untold[0]()
            untold.clear()
        original(self, distribute_strategy, *args, **kwargs)

    replace(TFEpochIterator, "__init__", begin)
