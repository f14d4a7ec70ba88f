"""``python -m mwmagic.supervisor SOCKET``, with the configuration on standard input."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

from mwmagic.errors import MwmagicError
from mwmagic.model.config import Config

from . import orphans
from .supervisor import Supervisor


def _say(**fields: object) -> None:
    """Tell whoever started this process, once, and let go of its pipe."""
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stdout.fileno())
    os.close(nothing)


async def _serve(config: Config, socket: Path) -> None:
    try:
        supervisor = Supervisor(config, socket)
        await supervisor.open()
    except MwmagicError as error:
        _say(error=str(error), kind=type(error).__name__)
        return
    _say(ready=str(socket))
    await supervisor.serve()
    # Whoever started this process removes it too, but may be gone.
    socket.with_suffix(".log").unlink(missing_ok=True)


def main() -> None:
    """Serve the cluster that standard input describes."""
    orphans.adopt()
    config = Config.from_json(sys.stdin.readline())
    asyncio.run(_serve(config, Path(sys.argv[1])))


if __name__ == "__main__":
    main()
