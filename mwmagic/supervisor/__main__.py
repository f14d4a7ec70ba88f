"""A supervisor's program: on standard input it gets the path of its socket, and a `Start`."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

from mwmagic.agent.system import PR_SET_CHILD_SUBREAPER, PR_SET_PDEATHSIG, prctl
from mwmagic.errors import MwmagicError
from mwmagic.model.messages import Start

from .supervisor import Supervisor


def _say(**fields: object) -> None:
    """Answer the process that started this one, once, and close the pipe to it."""
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stdout.fileno())
    os.close(nothing)


async def _serve(line: str, socket: Path) -> None:
    try:
        supervisor = Supervisor(Start.from_line(line), socket)
        await supervisor.open()
    except MwmagicError as error:
        _say(error=str(error), kind=type(error).__name__)
        return
    _say(ready=str(socket))
    await supervisor.serve()
    # The client that started this process removes it too, but may be gone.
    socket.with_suffix(".log").unlink(missing_ok=True)


def _log_to(path: Path) -> None:
    """Print errors into a file from now on."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    os.dup2(descriptor, sys.stderr.fileno())
    os.close(descriptor)


def adopt_orphans() -> None:
    """Ask the kernel for the orphans among this process's descendants."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)


def _survive_stops() -> None:
    """Continue when the owner dies: a process that is stopped by then could not end its cluster."""
    prctl(PR_SET_PDEATHSIG, signal.SIGCONT)


def main() -> None:
    """Serve the cluster that standard input describes; without any, it is not needed."""
    adopt_orphans()
    _survive_stops()
    line = sys.stdin.readline()
    if not line:
        return
    socket = Path(json.loads(line))
    _log_to(socket.with_suffix(".log"))
    asyncio.run(_serve(sys.stdin.readline(), socket))


if __name__ == "__main__":
    main()
