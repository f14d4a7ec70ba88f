"""Engines: they provide a cluster with machines.

An engine only says which machines there are and how to start an agent on each;
the supervisor and the agents do everything else. Other packages add an engine
with an entry point in the group ``mwmagic.engines``: its name is the one that
``--engine`` takes, and its value is a callable that takes the declared options
and returns an `Engine`. Its attribute ``takes`` names the options of other machines
(`Option.engines`) that it takes; the others are refused.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import TYPE_CHECKING, cast

from mwmagic.errors import ClusterError
from mwmagic.model.options import OPTIONS

from .command import CommandEngine
from .engine import Engine, Host, agent_command
from .local import LocalEngine
from .ray import RayEngine
from .slurm import SlurmEngine
from .ssh import SshEngine

if TYPE_CHECKING:
    from collections.abc import Callable

    from mwmagic.model.options import ClusterOptions

__all__ = ["ENGINES", "GROUP", "Engine", "Host", "agent_command", "engine_for", "engine_names"]

GROUP = "mwmagic.engines"
"""The group of entry points with which other packages add engines."""

ENGINES: dict[str, Callable[[ClusterOptions], Engine]] = {
    "local": LocalEngine,
    "slurm": SlurmEngine,
    "ssh": SshEngine,
    "command": CommandEngine,
    "ray": RayEngine,
}
"""The engines of this package by name, as ``--engine`` takes it."""


def engine_names() -> list[str]:
    """Return the names that ``--engine`` takes."""
    return list(dict.fromkeys([*ENGINES, *(point.name for point in entry_points(group=GROUP))]))


def engine_for(options: ClusterOptions) -> Engine:
    """Return a new engine for a declared cluster.

    Raises
    ------
    ClusterError
        There is no such engine, another package's cannot be imported, or it does not take
        an option.
    """
    make = _factory(options.engine)
    _check_taken(options, make)
    return make(options)


def _check_taken(options: ClusterOptions, make: Callable[[ClusterOptions], Engine]) -> None:
    """Refuse the options that an engine would ignore."""
    for name, option in OPTIONS.items():
        given = option.engines and getattr(options, name) != option.default
        if given and name not in _takes(make):
            others = [one for one, other in ENGINES.items() if name in _takes(other)]
            raise ClusterError(
                f"the engine {options.engine!r} does not take {option.flag}"
                + (f"; {', '.join(others)} take it" if others else "")
            )


def _takes(make: Callable[[ClusterOptions], Engine]) -> frozenset[str]:
    return frozenset(getattr(make, "takes", ()))


def _factory(name: str) -> Callable[[ClusterOptions], Engine]:
    if name in ENGINES:
        return ENGINES[name]
    for point in entry_points(group=GROUP, name=name):
        try:
            made = point.load()
        except (ImportError, AttributeError) as error:
            raise ClusterError(f"the engine {name!r} ({point.value}) fails: {error}") from error
        return cast("Callable[[ClusterOptions], Engine]", made)
    raise ClusterError(f"unknown engine {name!r}; the engines are {', '.join(engine_names())}")
