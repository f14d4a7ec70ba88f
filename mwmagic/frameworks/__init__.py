"""What mwmagic knows about each framework, in one class per framework.

To add a framework, write a subclass of `Framework` in its own module and list it here.
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
"""The frameworks by name, as ``--framework`` takes it."""


def register(framework: Framework) -> None:
    """Register a framework in this process; it must not have read any log yet."""
    FRAMEWORKS[framework.name] = framework


for _one in (TensorFlow(), Jax(), Torch()):
    register(_one)


def frameworks() -> tuple[Framework, ...]:
    """Return every framework."""
    return tuple(FRAMEWORKS.values())


def framework_for(name: str) -> Framework:
    """Return the framework of a name."""
    if name not in FRAMEWORKS:
        known = ", ".join(FRAMEWORKS)
        raise ClusterError(f"unknown framework {name!r}; the frameworks are {known}")
    return FRAMEWORKS[name]
