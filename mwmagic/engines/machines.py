"""The machines that a user names, for the engines that reach each of them with a command."""

from __future__ import annotations

import asyncio
import shlex
import shutil
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mwmagic.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from typing import ClassVar

    from mwmagic.model.cluster import Task
    from mwmagic.model.options import ClusterOptions

    from .engine import Host

__all__ = [
    "NamedEngine",
    "NamedMachine",
    "check_program",
    "chosen",
    "make_it_work",
    "named_machines",
]


@dataclass(frozen=True)
class NamedMachine:
    """A machine as the user names it: ``lab1``, ``me@lab1`` or ``lab1=10.0.0.1``.

    Parameters
    ----------
    name : str
        The name for the command that reaches it.
    address : str
        Where the other machines reach it; empty if the user did not say.
    """

    name: str
    address: str = ""


def named_machines(hosts: Sequence[str], example: str) -> list[NamedMachine]:
    """Return the machines that a user named."""
    if not hosts:
        raise ClusterError(f"name the machines to use, as in {example}")
    found: dict[str, NamedMachine] = {}
    for host in hosts:
        name, equals, address = host.partition("=")
        if name.startswith("-") or not name or (equals and not address) or name.split() != [name]:
            raise ClusterError(f"{host!r} is not a machine's name; write them as in {example}")
        if name in found:
            raise ClusterError(f"the machine {name} is named twice; name each once")
        found[name] = NamedMachine(name, address)
    return list(found.values())


def chosen(
    machines: Sequence[NamedMachine], count: int, avoid: Collection[str]
) -> list[NamedMachine]:
    """Return at most `count` machines, and those to avoid only if there are no others."""
    others = [one for one in machines if one.name not in avoid]
    return (others or list(machines))[:count]


class NamedEngine(ABC):
    """What the engines of named machines have in common; see `mwmagic.engines.Engine`."""

    example: ClassVar[str]
    takes: ClassVar[frozenset[str]] = frozenset(
        {"hosts", "python", "scheduler", "interface", "files", "lease", "hold"}
    )
    helpers: Collection[int] = ()

    def __init__(self, options: ClusterOptions) -> None:
        self.options = options
        self.machines = named_machines(options.hosts, self.example)
        self._hosts: dict[NamedMachine, Host] = {}

    async def allocate(
        self,
        tasks: Sequence[Task],
        *,
        avoid: Collection[str],
        notify: Callable[[str], None],  # noqa: ARG002 - nothing to wait for
    ) -> Sequence[Host]:
        """Return the named machines, and those to avoid only if there are no others."""
        wanted = chosen(self.machines, len(tasks), avoid)
        new = [machine for machine in wanted if machine not in self._hosts]
        hosts = await asyncio.gather(*map(self.reach, new))
        self._hosts |= zip(new, hosts, strict=True)
        return [self._hosts[machine] for machine in wanted]

    @abstractmethod
    async def reach(self, machine: NamedMachine) -> Host:
        """Return the host that a machine is."""

    async def why(self, host: Host) -> str | None:
        """Return the last words of the command that reaches a machine."""
        return host.stderr.last or None

    async def release(self) -> None:  # noqa: B027 - most need nothing else
        """Do nothing: the agents end with their channels."""


def check_program(name: str, what: str) -> None:
    """Refuse a command whose program is not installed here."""
    if shutil.which(name) is None:
        raise ClusterError(f"there is no program {name!r} on this machine; {what}")


def make_it_work(trial: Sequence[str]) -> str:
    """Return the next step for a user whose machine does not answer."""
    return "First make this work in a terminal, without a question or other output: " + shlex.join(
        trial
    )
