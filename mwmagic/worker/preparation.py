"""Prepares a worker for the frameworks that the user's code may import.

What this imports is small, and imports no framework; warm workers share it.
"""

from __future__ import annotations

import os

from mwmagic import repairs
from mwmagic.model import variables

from . import coordination, devices, downloads, fit, iterators, questions, strategies
from .line import descriptor

TYPE_CHECKING = False  # a worker starts without `typing`
if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["prepare"]


def prepare(announce: Callable[[str], None]) -> None:
    """Install what each framework needs, before the user's code imports any.

    Parameters
    ----------
    announce : callable
        Prints what the user should know of it.
    """
    keras = os.environ.get(variables.KERAS, "auto")
    repairs.install(keras, announce)
    if keras != "plain":
        downloads.install()
    heartbeat = float(os.environ.get(variables.HEARTBEAT, "0"))
    if heartbeat:
        coordination.install(heartbeat)
    devices.install(int(os.environ.get(variables.DEVICES, "0")))
    iterators.install()
    strategies.install()
    if descriptor() is not None and keras != "plain":
        fit.install()
    if variables.ANSWERED in os.environ:
        questions.install()
