"""Engines: they provide a cluster with machines.

An engine only says which machines there are and how to start an agent on each;
the supervisor and the agents do everything else. Other packages add an engine
with an entry point in the group ``mwmagic.engines``: its name is the one that
``--engine`` takes, and its value is a callable that takes the declared options
and returns an `Engine`. Its attribute ``takes`` names the options of other machines
(`Option.engines`) that it takes; the others are refused.

`engine` is the contract, with the engine of this machine and the code that travels to another one;
`named` has the engines whose machines the user names, which are reached by ssh or by a command of
the user's. `slurm` is the nodes of a Slurm cluster (an allocation that `salloc` gets;
`job` is what Slurm says of it), and `ray` the nodes of a Ray cluster (`driver` is the process
that imports Ray). `channel` talks to an agent over a `link`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, cast

from mwmagic.errors import ClusterError
from mwmagic.model.options import OPTIONS

from .engine import Engine, Host, agent_command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from importlib.metadata import EntryPoint

    from mwmagic.model.options import ClusterOptions

    Make = Callable[[ClusterOptions], Engine]

__all__ = ["ENGINES", "GROUP", "Engine", "Host", "agent_command", "engine_for", "engine_names"]

GROUP = "mwmagic.engines"
"""The group of entry points with which other packages add engines."""

ENGINES = ("local", "slurm", "ssh", "command", "ray")
"""The engines of this package, as ``--engine`` takes them; each is a class of a module."""

_MODULES = {"local": "engine", "command": "named", "ssh": "named"}
"""The modules that are not named as their engine."""


def _others() -> Iterable[EntryPoint]:
    """Return the entry points of other packages' engines."""
    from importlib.metadata import entry_points  # takes longer than all of an engine

    return entry_points(group=GROUP)


def engine_names() -> list[str]:
    """Return the names that ``--engine`` takes."""
    return list(dict.fromkeys([*ENGINES, *(point.name for point in _others())]))


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


def _check_taken(options: ClusterOptions, make: Make) -> None:
    """Refuse the options that an engine would ignore."""
    for name, option in OPTIONS.items():
        given = option.engines and getattr(options, name) != option.default
        if given and name not in _takes(make):
            others = [one for one in ENGINES if name in _takes(_own(one))]
            raise ClusterError(
                f"the engine {options.engine!r} does not take {option.flag}"
                + (f"; {', '.join(others)} take it" if others else "")
            )


def _takes(make: Make) -> frozenset[str]:
    return frozenset(getattr(make, "takes", ()))


def _own(name: str) -> Make:
    """Return an engine of this package."""
    module = import_module(f".{_MODULES.get(name, name)}", __package__)
    return cast("Make", getattr(module, f"{name.title()}Engine"))


def _factory(name: str) -> Make:
    if name in ENGINES:
        return _own(name)
    for point in (one for one in _others() if one.name == name):
        try:
            made = point.load()
        except (ImportError, AttributeError) as error:
            raise ClusterError(
                f"the engine {name!r} ({point.value}) cannot be loaded: {error}"
            ) from error
        return cast("Make", made)
    raise ClusterError(f"unknown engine {name!r}; the engines are {', '.join(engine_names())}")
