"""The ssh engine: machines that the user can log in to without a password."""

from __future__ import annotations

import asyncio
import math
import re
import shlex
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from mwmagic.errors import ClusterError

from .engine import Host, agent_command
from .link import Stderr
from .named import NamedEngine, check_program, make_it_work

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .named import NamedMachine

__all__ = ["SshEngine"]

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
