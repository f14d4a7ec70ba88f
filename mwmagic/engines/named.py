"""Machines that the user names, and the engine of those reached by a command of the user's."""

from __future__ import annotations

import asyncio
import re
import shlex
import shutil
import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mwmagic.errors import ClusterError

from .engine import Host, agent_command

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from typing import ClassVar

    from mwmagic.model.cluster import Task
    from mwmagic.model.options import ClusterOptions

__all__ = ["CommandEngine", "NamedEngine", "NamedMachine", "check_program", "make_it_work"]


@dataclass(frozen=True)
class NamedMachine:
    """A machine as the user names it: ``lab1``, ``me@lab1`` or ``lab1=10.0.0.1``.

    `name` is for the command that reaches it; `address` is empty if the user did not say it.
    """

    name: str
    address: str = ""


def _named_machines(hosts: Sequence[str], example: str) -> list[NamedMachine]:
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


def _chosen(
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
        self.machines = _named_machines(options.hosts, self.example)
        self._hosts: dict[NamedMachine, Host] = {}

    async def allocate(
        self,
        tasks: Sequence[Task],
        *,
        avoid: Collection[str],
        notify: Callable[[str], None],  # noqa: ARG002 - nothing to wait for
    ) -> Sequence[Host]:
        """Return the named machines, and those to avoid only if there are no others."""
        wanted = _chosen(self.machines, len(tasks), avoid)
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


COMMAND_EXAMPLE = "--engine command --hosts a,b -- kubectl exec -i {host} -- {python} -"

_PLACE = re.compile(r"{(\w+)}")
_PLACES = {"host", "python", "agent"}


class CommandEngine(NamedEngine):
    """Machines reached by the user's own command; see `mwmagic.engines.Engine`.

    Its standard input and output must be those of the process that it starts on the
    machine. No shell reads it.
    """

    example = COMMAND_EXAMPLE

    def __init__(self, options: ClusterOptions) -> None:
        super().__init__(options)
        self._template = _template(options.scheduler)

    async def reach(self, machine: NamedMachine) -> Host:
        """Return a machine that the user's command reaches."""
        python = self.options.python or sys.executable
        command = _filled(self._template, machine.name, agent_command(python))
        check_program(command[0], "install it, or write another command after --")
        trial = _filled(self._template, machine.name, (python, "--version"))
        return Host(
            machine.name, machine.address or machine.name, command, hint=make_it_work(trial)
        )


def _template(words: Sequence[str]) -> tuple[str, ...]:
    """Return a template in which ``{agent}`` alone stands for the agent's whole command."""
    if not words:
        raise ClusterError(
            f"write the command that reaches a machine after --, as in {COMMAND_EXAMPLE}"
        )
    unknown = {one for word in words for one in _PLACE.findall(word)} - _PLACES
    if unknown:
        raise ClusterError(
            f"the command has {{{min(unknown)}}}; it may have {{host}}, {{python}} and {{agent}}"
        )
    full = list(words)
    if full[-2:] == ["{python}", "-"]:
        full[-2:] = ["{agent}"]
    if full.count("{agent}") != 1:
        raise ClusterError(
            "the command must start the agent once: let it end with {python} -, or write the word "
            f"{{agent}} where that belongs, as in {COMMAND_EXAMPLE}"
        )
    return tuple(full)


def _filled(template: Sequence[str], host: str, agent: Sequence[str]) -> tuple[str, ...]:
    """Return the command for a machine."""
    values = {"host": host, "python": agent[0]}
    filled: list[str] = []
    for word in template:
        if word == "{agent}":
            filled += agent
        else:
            filled.append(_PLACE.sub(lambda place: values.get(place[1], place[0]), word))
    return tuple(filled)
