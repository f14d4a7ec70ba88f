"""Multi-worker TensorFlow and Keras experiments in Jupyter.

``%load_ext mwmagic`` brings the magics; scripts use `Cluster`.
"""

from __future__ import annotations

import sys

from . import errors
from .errors import *  # noqa: F403 - every error is public

TYPE_CHECKING = False  # a worker starts without `typing`
if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from mwmagic.experiments.runs import runs

    from .client.cluster import Cluster
    from .client.lookup import clusters
    from .client.run import Run
    from .client.scaling import scale
    from .experiments.sweep import sweeps
    from .model.cluster import ClusterSpec, Task


def _check_system(platform: str) -> None:
    """Refuse an operating system that lacks what a gang needs."""
    if platform == "win32":
        raise errors.UnsupportedPlatform(
            "mwmagic needs Linux to keep its processes together, and this is Windows; "
            "install WSL2 (`wsl --install`) and run Jupyter inside it"
        )
    if not platform.startswith("linux"):
        raise errors.UnsupportedPlatform(
            f"mwmagic needs Linux (pidfd, subreaper, SO_REUSEPORT), not {platform}; "
            "run Jupyter in a Linux container or virtual machine"
        )


# Before any other module, some of which cannot even be imported elsewhere.
_check_system(sys.platform)

__version__ = "0.1.0"

__all__ = ["Cluster", "ClusterSpec", "Run", "Task", "__version__", "clusters", "runs", "scale"]
__all__ += ["sweeps"]
__all__ += errors.__all__

_HOMES = {"Cluster": "client.cluster", "clusters": "client.lookup"}
_HOMES |= dict.fromkeys(("ClusterSpec", "Task"), "model.cluster")
_HOMES |= {"Run": "client.run", "runs": "experiments.runs", "scale": "client.scaling"}
_HOMES |= {"sweeps": "experiments.sweep"}


def __getattr__(name: str) -> object:
    """Import a public name when it is first used; workers import this package too."""
    if name not in _HOMES:
        raise AttributeError(f"module 'mwmagic' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"mwmagic.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__


def load_ipython_extension(ipython: InteractiveShell) -> None:
    """Register the magics.

    Code that ``%%mw_worker`` launches runs in the background and ends with the kernel. End a
    notebook with ``%mw_wait``, which waits for it and fails if it does.
    """
    from .magics import load

    load(ipython)


def unload_ipython_extension(ipython: InteractiveShell) -> None:
    """Remove the magics and end their clusters, unless they are being reloaded."""
    from .magics import unload

    unload(ipython)
