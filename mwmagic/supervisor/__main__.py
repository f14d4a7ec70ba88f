"""``python -m mwmagic.supervisor SOCKET``, with a `Start` on standard input."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

from mwmagic.errors import MwmagicError
from mwmagic.model.start import Start

from . import orphans
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


def main() -> None:
    """Serve the cluster that standard input describes."""
    orphans.adopt()
    orphans.survive_stops()
    asyncio.run(_serve(sys.stdin.readline(), Path(sys.argv[1])))


if __name__ == "__main__":
    main()
