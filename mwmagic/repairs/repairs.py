# ruff: noqa: SLF001 - what Keras leaves out of tracebacks is private
"""All repairs, and whether the installed Keras is one that they fit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from . import agreement, backup, callbacks, data, fit, gradients, saving
from .parts import traceback_utils
from .repair import State, UnknownKeras

if TYPE_CHECKING:
    from .repair import Repair

__all__ = ["REPAIRS", "apply"]

REPAIRS: tuple[Repair, ...] = (
    *fit.REPAIRS,
    *agreement.REPAIRS,
    *gradients.REPAIRS,
    *data.REPAIRS,
    *saving.REPAIRS,
    *callbacks.REPAIRS,
    *backup.REPAIRS,
)


# Whether this process's Keras has been repaired.
_DONE: list[bool] = []


def apply() -> tuple[bool, list[Repair]]:
    """Apply the repairs that the installed Keras needs, once in a process."""
    if _DONE:
        return False, []
    states = [(repair, repair.state) for repair in REPAIRS]
    unknown = [repair for repair, state in states if state is State.UNKNOWN]
    if not all(repair.is_separable for repair in unknown):
        raise UnknownKeras("; ".join(repair.unlike for repair in unknown))
    needed = [repair for repair, state in states if state is State.DEFECTIVE]
    for repair in needed:
        repair.apply()
    _DONE.append(True)
    _leave_tracebacks_to_the_user()
    return bool(needed), unknown


def _leave_tracebacks_to_the_user() -> None:
    """Keep the frames of the repairs, and of the recovery, out of tracebacks, as Keras does."""
    here = Path(__file__).parent
    ours = (str(here), str(here.with_name("recovery")))
    if ours[0] not in traceback_utils._EXCLUDED_PATHS:
        traceback_utils._EXCLUDED_PATHS += ours
