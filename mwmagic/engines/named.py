"""Machines that the user names, and the engines that reach them: by ssh, or a command of theirs."""

from __future__ import annotations

import asyncio
import math
import re
import shlex
import shutil
import sys
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mwmagic.errors import ClusterError

from . import Host, agent_command
from .link import Stderr

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from typing import ClassVar

    from mwmagic.model.cluster import Task
    from mwmagic.model.options import ClusterOptions

__all__ = [
    "CommandEngine",
    "NamedEngine",
    "NamedMachine",
    "SshEngine",
    "check_program",
    "make_it_work",
]


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


SSH_EXAMPLE = "--engine ssh --hosts lab1,lab2"

CONNECT_SECONDS = 15
"""How long ssh may take to reach a machine: less than the supervisor waits for the agent."""

ALIVE_TRIES = 2
"""Unanswered questions after which ssh gives up."""

_HOME = re.compile(r"~[\w.-]*/")


class SshEngine(NamedEngine):
    """Machines reached by ssh; see `mwmagic.engines.Engine`.

    The user's configuration, keys, agent and shared connections are used as they
    are. Host keys are always checked, and nothing is asked.
    """

    example = SSH_EXAMPLE

    async def reach(self, machine: NamedMachine) -> Host:
        """Return a machine that ssh reaches."""
        check_program("ssh", "install the client of OpenSSH")
        address = await self._address(machine)
        python = self.options.python or sys.executable
        trial = ["ssh", *self.options.scheduler, machine.name, f"{_word(python)} --version"]
        return Host(
            machine.name,
            address,
            (*self._client("-T"), machine.name, "--", *_quoted(agent_command(python))),
            hint=make_it_work(trial),
        )

    def _client(self, *words: str) -> list[str]:
        """Return how ssh is called; of an option given twice, it takes the user's, the first."""
        settings = {
            "BatchMode": "yes",
            "ConnectTimeout": CONNECT_SECONDS,
            # Otherwise other clusters' connections would end with this one's.
            "ControlMaster": "no",
            **self._patience(),
        }
        given = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
        return ["ssh", *self.options.scheduler, *words, *given]

    def _patience(self) -> dict[str, int]:
        """Return settings with which ssh gives up a dead connection, but later than the lease.

        A machine must not count as lost before its agent has ended everything.
        """
        lease = math.ceil(self.options.lease)
        if not lease:
            return {}
        return {"ServerAliveInterval": lease, "ServerAliveCountMax": ALIVE_TRIES}

    async def _address(self, machine: NamedMachine) -> str:
        """Return the host name that ssh's configuration has for a machine."""
        if machine.address:
            return machine.address
        said, error = await _printed([*self._client("-G"), machine.name])
        names = [line.split() for line in said.splitlines()]
        for name in names:
            if name[:1] == ["hostname"] and len(name) > 1:
                return f"[{name[1]}]" if ":" in name[1] else name[1]
        raise ClusterError(f"ssh does not accept {machine.name!r}: {error or 'it prints no name'}")


async def _printed(command: Sequence[str]) -> tuple[str, str]:
    """Run a command, and return what it prints, and what it says on its standard error."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        printed, errors = await process.communicate()
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    stderr = Stderr()
    stderr.feed(errors)
    return printed.decode(errors="replace"), stderr.last


def _quoted(command: Sequence[str]) -> list[str]:
    """Quote a command for the remote shell."""
    python, *words = command
    return [_word(python), *map(shlex.quote, words)]


def _word(path: str) -> str:
    """Quote a path for the remote shell, which expands a leading ``~/``."""
    home = _HOME.match(path)
    at = home.end() if home else 0
    return path[:at] + (shlex.quote(path[at:]) if path[at:] else "")
