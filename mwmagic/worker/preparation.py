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

__all__ = ["announce", "preload", "prepare", "prepare_child"]


_KERAS = ("keras", "tf_keras")

_CHILD = f"{os.path.dirname(os.path.realpath(__file__))}/child"  # noqa: PTH120 - `pathlib` takes a while to import
"""Where Python finds the `sitecustomize` of this package."""

_INSTALLED: list[str] = []
"""The names of what is installed in this process, and in those that are forked from it."""


def announce(text: str) -> None:
    """Print what the user should know."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def preload() -> None:
    """Do what workers have in common in a process that they are forked from.

    Its modules are imported by then, and its workers are of one cluster: what depends on the
    environment is the same for all of them. It runs no operation of a framework.
    """
    from . import coordination, devices, downloads, fit, iterators, strategies, watch  # noqa: F401

    if _mode() == "auto":
        import linecache

        _install(observed=True)
        linecache.clearcache()  # of Keras's files, which no worker needs


def prepare() -> None:
    """Install what each framework needs, before the user's code imports any."""
    line = descriptor()  # which the processes of the user's code are not to inherit
    if not _INSTALLED:
        _install(observed=line is not None)
    _split_devices()
    if variables.ANSWERED in os.environ:
        from . import questions

        questions.install()
    _pass_on()


def prepare_child() -> None:
    """Do the same in a Python that a worker started, which has no line of its own."""
    _install(observed=False)
    _split_devices()


def _pass_on() -> None:
    """Have a Python that this process starts or becomes be prepared, before all that it imports."""
    if "TF_CONFIG" in os.environ:
        others = filter(None, [os.environ.get("PYTHONPATH")])
        os.environ["PYTHONPATH"] = os.pathsep.join([_CHILD, *others])


def _split_devices() -> None:
    count = int(os.environ.get(variables.DEVICES, "0"))
    if count:
        from . import devices

        devices.install(count)


def _mode() -> str:
    return os.environ.get(variables.KERAS, "auto")


def _install(*, observed: bool) -> None:
    """Install what acts when a framework is imported."""
    mode = _mode()
    repairs.install(mode, announce)
    after_import("tensorflow", _prepare_tensorflow)
    after_import("jax", _prepare_jax)
    if mode != "plain":
        for name in _KERAS:
            after_import(name, _prepare_observed if observed else _prepare_keras)
    _INSTALLED.append(mode)


def _prepare_tensorflow(_: ModuleType) -> None:
    from . import coordination, iterators, strategies

    heartbeat = float(os.environ.get(variables.HEARTBEAT, "0"))
    if heartbeat:
        coordination.install(heartbeat)
    iterators.install()
    strategies.install()


def _prepare_jax(jax: ModuleType) -> None:
    """Have JAX not warn of `no_grpc_proxy`, which the supervisor sets to bypass any proxy."""
    try:  # noqa: SIM105 - `contextlib` takes a while to import
        jax.config.update("jax_check_proxy_envs", False)  # noqa: FBT003 - JAX reads no variable
    except AttributeError:  # another version of JAX
        pass


def _prepare_keras(keras: ModuleType) -> None:
    from . import downloads

    downloads.install(keras.__name__)


def _prepare_observed(keras: ModuleType) -> None:
    from . import fit

    _prepare_keras(keras)
    fit.observe(keras)
