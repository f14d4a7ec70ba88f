"""What mwmagic knows about each framework, in one class per framework.

`framework` has the bases, and TensorFlow, JAX and PyTorch, which are derived from them;
`environment` has the variables that they need. To add a framework, write a subclass of `Framework`
there and list it here.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mwmagic.errors import ClusterError, NotInstalled

from .framework import Framework, Jax, Milestone, TensorFlow, Torch, tf_config

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = [
    "FRAMEWORKS",
    "Framework",
    "Milestone",
    "alternatives",
    "check_installed",
    "collected",
    "either",
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


_NOTHING = r"(?!)"


def alternatives(patterns: Iterable[str]) -> str:
    """Return an expression that matches if any of `patterns` does; without any, it never does."""
    return "|".join(f"(?:{pattern})" for pattern in dict.fromkeys(patterns)) or _NOTHING


def collected(pick: Callable[[Framework], Iterable[str]]) -> list[str]:
    """Return what `pick` selects from each framework, without duplicates."""
    return list(dict.fromkeys(pattern for one in frameworks() for pattern in pick(one)))


def either(pick: Callable[[Framework], Iterable[str]], flags: int = 0) -> re.Pattern[str]:
    """Return an expression that matches any pattern that `pick` selects from the frameworks."""
    return re.compile(alternatives(collected(pick)), flags)


def check_installed(source: str) -> None:
    """Refuse code whose framework is missing, before any process starts."""
    from importlib.util import find_spec  # no worker needs it

    wanted = {module: pip for one in frameworks() for module, pip in one.requirements.items()}
    imports = re.compile(rf"^(?:import|from)\s+({'|'.join(wanted)})\b", re.MULTILINE)
    for module in dict.fromkeys(imports.findall(source)):
        if find_spec(module) is None:
            raise NotInstalled(f'{module} is not installed: pip install "{wanted[module]}"')
