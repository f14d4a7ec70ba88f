"""The command line: ``mwmagic run -n 2 main.py`` and its companions."""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper
from typing import TYPE_CHECKING, NoReturn

from mwmagic import __version__
from mwmagic.client.usage import ConciseParser
from mwmagic.errors import MwmagicError, RunStopped

from . import clusters, demo, logs, run
from .request import Terminated, die

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

__all__ = ["main", "parser"]

_COMMANDS: dict[str, tuple[str, Callable[[argparse.ArgumentParser], None]]] = {
    "run": ("Run a script on every task of a new cluster.", run.add),
    "demo": ("Execute the quickstart notebook, in which two workers train.", demo.add),
    "ps": ("List the running clusters.", clusters.add_ps),
    "logs": ("Show what the tasks of a recorded run printed.", logs.add),
    "stop": ("End clusters and everything they run.", clusters.add_stop),
}


class _Parser(ConciseParser):
    """Prints one clear error and exits."""

    def error(self, message: str) -> NoReturn:
        """Print what is wrong and exit with the code of a usage error."""
        self.exit(2, self.explained(message) + "\n")


def parser() -> argparse.ArgumentParser:
    """Return the command line's parser."""
    top = _Parser("mwmagic", description="Multi-worker training on this machine.")
    top.add_argument("--version", action="version", version=f"mwmagic {__version__}")
    commands = top.add_subparsers(required=True, metavar="COMMAND")
    for name, (what, add) in _COMMANDS.items():
        add(commands.add_parser(name, help=what, description=what))
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments; by default the process's own.
    """
    given = parser().parse_args(argv)
    # A log may contain characters that the terminal's encoding lacks.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
    action: Callable[[argparse.Namespace], int] = given.action
    try:
        return action(given)
    except RunStopped as error:
        print(f"mwmagic: {error}", file=sys.stderr)
        return 1
    except (MwmagicError, FileNotFoundError) as error:
        print(f"mwmagic: {error}", file=sys.stderr)
        return 2
    except Terminated as request:
        die(request)
        return 128 + request.number
    except KeyboardInterrupt:
        return run.INTERRUPTED_CODE
    except BrokenPipeError:
        # The reader closed the pipe; do not report that again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
