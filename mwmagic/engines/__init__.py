"""Engines: they provide a cluster with machines.

An engine only says which machines there are and how to start an agent on each;
the supervisor and the agents do everything else. Other packages add an engine
with an entry point in the group ``mwmagic.engines``: its name is the one that
``--engine`` takes, and its value is a callable that takes the declared options
and returns an `Engine`. Its attribute ``takes`` names the options of other machines
(`Option.engines`) that it takes; the others are refused.

Here are the contract, the engine of this machine and the code that travels to another one; `named`
has the engines whose machines the user names, which are reached by ssh or by a command of the
user's. `slurm` is the nodes of a Slurm cluster (an allocation that `salloc` gets;
`job` is what Slurm says of it), and `ray` the nodes of a Ray cluster (`driver` is the process
that imports Ray). `channel` talks to an agent over a `link`.
"""

from __future__ import annotations

import base64
import functools
import io
import sys
import zipfile
import zlib
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast, runtime_checkable

from mwmagic.agent import loader
from mwmagic.errors import ClusterError
from mwmagic.model.options import OPTIONS

from .link import Link, Pipes, Stderr

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from importlib.metadata import EntryPoint

    from mwmagic.model.cluster import Task
    from mwmagic.model.options import ClusterOptions

    Make = Callable[[ClusterOptions], "Engine"]

__all__ = [
    "ENGINES",
    "GROUP",
    "Engine",
    "Host",
    "PreparingEngine",
    "agent_command",
    "engine_for",
    "engine_names",
]

GROUP = "mwmagic.engines"
"""The group of entry points with which other packages add engines."""

ENGINES = ("local", "slurm", "ssh", "command", "ray")
"""The engines of this package, as ``--engine`` takes them; each is a class of a module."""

_MODULES = {"command": "named", "ssh": "named"}
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
    if name == "local":
        return LocalEngine
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


def agent_command(python: str | None = None) -> tuple[str, ...]:
    """Return the command that runs the agent on another machine.

    Parameters
    ----------
    python : str, optional
        Python 3.10 or later there; by default the path of this one. It needs no packages:
        if the machine does not have this code, the channel brings it.
    """
    return (python or sys.executable, *_loader_arguments())


@dataclass(frozen=True)
class Host:
    """A machine that an engine offers.

    Parameters
    ----------
    name : str
        Its name, which is unique among the engine's machines.
    address : str
        The host name or IP address at which the other machines reach it.
    command : tuple of str
        The command that the supervisor starts; its standard input and output are the agent's.
    slots : int, optional
        The most tasks that it can run; by default any number.
    shared : bool, optional
        Whether it shares the disk that the record is written to; by default that is found out.
    here : bool
        Whether the command is the agent itself on this machine, not a client of a remote agent.
    env : mapping of str to str, optional
        The command's environment; by default the supervisor's.
    hint : str
        What to do if the agent does not answer.
    stderr : Stderr
        Takes what the command writes to its standard error.
    job : str
        The scheduler's job that it belongs to, for displays.
    until : float, optional
        When that job ends, in seconds of the wall clock, for displays.
    """

    name: str
    address: str
    command: tuple[str, ...]
    slots: int | None = None
    shared: bool | None = None
    here: bool = False
    env: Mapping[str, str] | None = field(default=None, hash=False)
    hint: str = field(default="", compare=False)
    stderr: Stderr = field(default_factory=Stderr, compare=False)
    # A machine whose job was extended is still the same machine.
    job: str = field(default="", compare=False)
    until: float | None = field(default=None, compare=False)

    async def connect(self) -> Link:
        """Start the agent and return the link to it.

        Raises
        ------
        OSError, SupervisorError
            It cannot be started.
        """
        return await Pipes.open(self.command, self.env, self.stderr)


class Engine(Protocol):
    """Decides which machines a cluster gets; the supervisor and the agents do the rest.

    `tests/support/fakes/conformance.py` checks that an engine fulfils this contract.

    Attributes
    ----------
    helpers : collection of int
        The ids of the engine's own child processes, such as ``salloc``.
    takes : frozenset of str
        The names of the options of other machines that it takes (optional; by default none).
    """

    @property
    def helpers(self) -> Collection[int]:
        """The engine's own child processes."""

    async def allocate(
        self, tasks: Sequence[Task], *, avoid: Collection[str], notify: Callable[[str], None]
    ) -> Sequence[Host]:
        """Return the machines on which to run `tasks` from now on.

        It is called again after a machine was lost or could not be reached. A
        machine that it returns again keeps its agent and its warm process.

        Parameters
        ----------
        tasks : sequence of Task
            In rank order; machines get contiguous shares of them, in the order returned.
        avoid : collection of str
            The names of machines that were lost. They may be returned if there are no others.
        notify : callable
            Called with the scheduler's messages while the allocation is pending.

        Raises
        ------
        MwmagicError
            The machines are not available.
        """

    async def why(self, host: Host) -> str | None:
        """Return what the scheduler says about a machine that was just lost, such as "preempted".

        The loss is reported without this if it takes longer than `WHY_SECONDS` of
        `mwmagic.supervisor.pool`.
        """

    async def release(self) -> None:
        """Give the machines back; safe to call twice and after a failed or cancelled `allocate`."""


@runtime_checkable
class PreparingEngine(Protocol):
    """What else an engine may have, if its machines take long to get."""

    def prepare(self, unresponsive: Collection[str]) -> None:
        """Learn which machines have not answered for half their lease.

        It is called when one stops responding, and when one answers again. Those that stay so
        are lost at the end of their lease: `allocate` is then called at once, and returns
        sooner if others are ready.

        Parameters
        ----------
        unresponsive : collection of str
            Their names; if there are none, what was prepared is not needed.
        """


CODE = Path(loader.__file__).parents[1]
"""This package's folder."""


@functools.cache
def code_digest() -> str:
    """Return the digest by which a machine knows whether it has this code."""
    return loader.digest_of(CODE)


@functools.cache
def code_archive() -> bytes:
    """Return what a loader reads when it has asked for the code: a size and an archive."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as files:
        for path in loader.sources(CODE):
            files.write(path, path.relative_to(CODE))
    data = packed.getvalue()
    return b"code %d\n" % len(data) + data


@functools.cache
def _loader_arguments() -> tuple[str, ...]:
    """Return the arguments with which Python becomes the agent, wherever it runs."""
    packed = base64.b64encode(zlib.compress(Path(loader.__file__).read_bytes())).decode()
    program = f"import base64,zlib;exec(zlib.decompress(base64.b64decode('{packed}')))"
    return ("-I", "-S", "-c", program, code_digest(), str(CODE))


class LocalEngine:
    """This machine; see `mwmagic.engines.Engine`."""

    helpers: Collection[int] = ()

    def __init__(self, options: ClusterOptions) -> None:
        self.options = options

    async def allocate(
        self,
        tasks: Sequence[Task],  # noqa: ARG002 - all of them fit
        *,
        avoid: Collection[str],  # noqa: ARG002 - there is no other machine
        notify: Callable[[str], None],  # noqa: ARG002 - nothing to wait for
    ) -> Sequence[Host]:
        """Return this machine."""
        agent = str(CODE / "agent" / "__main__.py")
        command = (sys.executable, "-I", "-S", agent)
        return [Host("localhost", "localhost", command, shared=True, here=True)]

    async def why(self, host: Host) -> str | None:  # noqa: ARG002 - no scheduler
        """Return None: there is no scheduler."""
        return None

    async def release(self) -> None:
        """Do nothing: the agent ends with its channel."""
