"""The machines that a user names, for the engines that reach each of them with a command."""

from __future__ import annotations

import shlex
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mwmagic.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

__all__ = [
    "NAMED_OPTIONS",
    "NamedMachine",
    "check_program",
    "chosen",
    "make_it_work",
    "named_machines",
]

NAMED_OPTIONS = frozenset({"hosts", "python", "scheduler", "files", "lease"})
"""The options that such an engine takes."""


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
    """Return the machines that a user named.

    Parameters
    ----------
    hosts : sequence of str
        What the user wrote.
    example : str
        What to write, for one who named none.

    Raises
    ------
    ClusterError
        There are none, one is named twice, or a name is not valid.
    """
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


def check_program(name: str, what: str) -> None:
    """Refuse a command whose program is not installed here.

    Raises
    ------
    ClusterError
        There is no such program.
    """
    if shutil.which(name) is None:
        raise ClusterError(f"there is no program {name!r} on this machine; {what}")


def make_it_work(trial: Sequence[str]) -> str:
    """Return the next step for a user whose machine does not answer.

    Parameters
    ----------
    trial : sequence of str
        What runs Python there as the agent's command does, but harmlessly.
    """
    return "First make this work in a terminal, without a question or other output: " + shlex.join(
        trial
    )
