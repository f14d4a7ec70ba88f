"""What is particular to each framework, one class for each.

To add one, write a subclass of `Framework` in a module of its own and list it here.
"""

from __future__ import annotations

from mwmagic.errors import ClusterError

from .framework import Framework, Milestone
from .jax import Jax
from .tensorflow import TensorFlow, tf_config
from .torch import Torch

__all__ = [
    "FRAMEWORKS",
    "Framework",
    "Milestone",
    "framework_for",
    "frameworks",
    "register",
    "tf_config",
]

FRAMEWORKS: dict[str, Framework] = {}
"""The frameworks by the name that ``--framework`` takes."""


def register(framework: Framework) -> None:
    """Make a framework known to this process, before it reads any log."""
    FRAMEWORKS[framework.name] = framework


for _one in (TensorFlow(), Jax(), Torch()):
    register(_one)


def frameworks() -> tuple[Framework, ...]:
    """Return every framework."""
    return tuple(FRAMEWORKS.values())


def framework_for(name: str) -> Framework:
    """Return a framework by its name.

    Raises
    ------
    ClusterError
        There is none of that name.
    """
    if name not in FRAMEWORKS:
        known = ", ".join(FRAMEWORKS)
        raise ClusterError(f"unknown framework {name!r}; the frameworks are {known}")
    return FRAMEWORKS[name]
