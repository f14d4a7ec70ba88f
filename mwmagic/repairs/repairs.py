# ruff: noqa: SLF001 - what Keras leaves out of tracebacks is private
"""All repairs, and the line that announces them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from keras.src.utils import traceback_utils

from . import (
    agreement,
    backup,
    callbacks,
    data,
    execution,
    fit,
    gradients,
    losses,
    place,
    refusals,
    regularization,
    saving,
    scope,
    versions,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from .repair import Repair

__all__ = ["REPAIRS", "apply"]

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
    *place.REPAIRS,
    *refusals.REPAIRS,
)


def apply(version: str, announce: Callable[[str], None]) -> None:
    """Apply the repairs that the installed Keras needs.

    Parameters
    ----------
    version : str
        Keras's version.
    announce : callable
        Called with one line when data first meets a multi-worker strategy.
    """
    needed = [repair for repair in REPAIRS if _is_needed(repair)]
    for repair in needed:
        repair.apply()
    _leave_tracebacks_to_the_user()
    if needed:
        versions.at_first_use(lambda: announce(_line(version)))


def _is_needed(repair: Repair) -> bool:
    try:
        return repair.defective()
    except AttributeError:
        return False  # another Keras, without the function that is defective in this one


def _line(version: str) -> str:
    line = f"mwmagic: repaired Keras {version} for several workers, as docs/keras.md describes"
    if versions.is_newer(version):
        line += f"; tested up to 3.{versions.LAST_COVERED}, this one is newer"
    return f"{line}; --keras plain turns this off"


def _leave_tracebacks_to_the_user() -> None:
    """Keep the repairs' frames out of tracebacks, as Keras does with its own."""
    here = str(Path(__file__).parent)
    if here not in traceback_utils._EXCLUDED_PATHS:
        traceback_utils._EXCLUDED_PATHS += (here,)
