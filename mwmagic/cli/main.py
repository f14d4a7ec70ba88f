"""The command line: ``mwmagic run -n 2 main.py`` and its companions."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NoReturn

from mwmagic import __version__
from mwmagic.client.arguments import ConciseParser
from mwmagic.errors import MwmagicError, RunStopped
from mwmagic.words.file import file_words

from . import clusters, demo, output, run

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

__all__ = ["main", "parser"]

_COMMANDS: dict[str, tuple[str, Callable[[argparse.ArgumentParser], None]]] = {
    "run": ("Run a script on every task of a new cluster.", run.add_run),
    "demo": ("Execute the quickstart notebook, in which two workers train.", demo.add),
    "ps": ("List the running clusters.", clusters.add_ps),
    "logs": ("Show what the tasks of a recorded run printed.", run.add_logs),
    "runs": ("List the recorded runs, and how they differ.", clusters.add_runs),
    "compare": ("Show two recorded runs or more side by side.", clusters.add_compare),
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
    """Run the command line and return the exit code."""
    output.prepare()
    try:
        try:
            return _obey(argv)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # the reader has enough
        output.silence()
        return 1
    except OSError as error:
        output.silence()
        output.say(file_words(error, error.filename or "the output"))
        return 2


def _obey(argv: Sequence[str] | None) -> int:
    """Carry out a command; return the exit code."""
    given = parser().parse_args(argv)
    action: Callable[[argparse.Namespace], int] = given.action
    try:
        return action(given)
    except RunStopped as error:
        output.say(str(error))
        return 1
    except (MwmagicError, FileNotFoundError) as error:
        output.say(str(error))
        return 2
    except run.Terminated as request:
        run.die(request)
        return 128 + request.number
    except KeyboardInterrupt:
        return run.INTERRUPTED_CODE
