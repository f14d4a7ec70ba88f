"""The command engine: machines reached by any command, such as ``kubectl exec``."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

from mwmagic.errors import ClusterError

from .engine import Host, NamedEngine, agent_command, check_program, make_it_work

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mwmagic.model.options import ClusterOptions

    from .engine import NamedMachine

__all__ = ["CommandEngine"]

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
