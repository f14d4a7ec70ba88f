"""Prepares a worker for the frameworks that the user's code may import.

It imports no framework, and what is for one only once the user's code has imported that: a
worker that needs none starts in half the time.
"""

from __future__ import annotations

import os
import sys

from mwmagic import repairs
from mwmagic.model import variables
from mwmagic.repairs.imports import after_import

from .line import descriptor

TYPE_CHECKING = False  # a worker starts without `typing`
if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["announce", "preload", "prepare"]


def announce(text: str) -> None:
    """Print what the user should know."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def preload() -> None:
    """Import what is for frameworks, in a process that workers are forked from."""
    from . import coordination, devices, downloads, fit, iterators, strategies, watch  # noqa: F401

    if _keras() == "auto":
        repairs.look()


def prepare() -> None:
    """Install what each framework needs, before the user's code imports any."""
    repairs.install(_keras(), announce)
    line = descriptor()  # which the processes of the user's code are not to inherit
    after_import("tensorflow", _prepare_tensorflow)
    if _keras() != "plain":
        _await_keras(observed=line is not None)
    if variables.ANSWERED in os.environ:
        from . import questions

        questions.install()


def _keras() -> str:
    return os.environ.get(variables.KERAS, "auto")


def _prepare_tensorflow(_: ModuleType) -> None:
    from . import coordination, devices, iterators, strategies

    heartbeat = float(os.environ.get(variables.HEARTBEAT, "0"))
    if heartbeat:
        coordination.install(heartbeat)
    devices.install(int(os.environ.get(variables.DEVICES, "0")))
    iterators.install()
    strategies.install()


def _await_keras(*, observed: bool) -> None:
    """Prepare each edition of Keras when it is imported."""

    def prepare_keras(keras: ModuleType) -> None:
        from . import downloads, fit

        downloads.install(keras.__name__)
        if observed:
            fit.observe(keras)

    for name in ("keras", "tf_keras"):
        after_import(name, prepare_keras)
