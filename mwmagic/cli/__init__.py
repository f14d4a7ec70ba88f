"""The command line: ``mwmagic run -n 2 main.py`` and its companions.

Each group of commands has a module: `clusters`, `sweep` (scaling studies too), `records`, `demo`
and `doctor`. `output` prints.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found] # `signal` would import other modules first

# While modules are imported, for a quarter of a second, Ctrl-C just ends the process: Python's own
# handler would print a traceback of the imports.
_handler = _signal.getsignal(_signal.SIGINT)
if _handler is _signal.default_int_handler:
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)

import sys
from typing import TYPE_CHECKING, NoReturn

from mwmagic import __version__
from mwmagic.client.arguments import ConciseParser
from mwmagic.errors import MwmagicError, RunStopped
from mwmagic.words.file import file_words

from . import clusters, demo, doctor, output, records, sweep

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

if _handler is _signal.default_int_handler:
    _signal.signal(_signal.SIGINT, _handler)

__all__ = ["main", "parser"]

_COMMANDS: dict[str, tuple[str, Callable[[argparse.ArgumentParser], None]]] = {
    "run": ("Run a script on every task of a new cluster.", clusters.add_run),
    "sweep": ("Run a script with many combinations of its parameters.", sweep.add_sweep),
    "scale": (
        "Run a script with several numbers of workers: do more of them help?",
        sweep.add_scale,
    ),
    "demo": ("Execute the quickstart notebook, in which two workers train.", demo.add),
    "ps": ("List the running clusters.", clusters.add_ps),
    "runs": ("List the recorded runs, and how they differ.", records.add_runs),
    "show": ("Show a recorded run: its state, its parameters and its tasks.", records.add_show),
    "logs": ("Show what the tasks of a recorded run printed.", records.add_logs),
    "explain": ("Show why a recorded run failed, and what to try.", records.add_explain),
    "profile": (
        "Profile a running task: how much of its time is input, or collectives?",
        records.add_profile,
    ),
    "wait": ("Wait until a run is over, or until something is true of it.", records.add_wait),
    "rerun": ("Run a recorded run again, on a cluster like its own.", records.add_rerun),
    "note": ("Write a note to a recorded run, or show it.", records.add_note),
    "tag": ("Give a recorded run tags, or take them away.", records.add_tag),
    "gc": ("Remove old runs: first list them, then remove them with --yes.", records.add_gc),
    "compare": ("Show two recorded runs or more side by side.", records.add_compare),
    "doctor": ("Show what works on this machine, and what to do about the rest.", doctor.add),
    "export": ("Write recorded runs for other tools, such as TensorBoard.", records.add_export),
    "stop": ("End clusters and everything they run.", clusters.add_stop),
}


class _Parser(ConciseParser):
    """Prints one clear error and exits."""

    def error(self, message: str) -> NoReturn:
        """Print what is wrong and exit with the code of a usage error."""
        self.exit(2, self.explained(message) + "\n")


def parser() -> argparse.ArgumentParser:
    """Return the command line's parser."""
    top = _Parser("mwmagic", description="Train on several workers, here or on other machines.")
    top.add_argument("--version", action="version", version=f"mwmagic {__version__}")
    commands = top.add_subparsers(required=True, metavar="COMMAND")
    for name, (what, add) in _COMMANDS.items():
        add(commands.add_parser(name, help=what, description=what))
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    try:
        output.prepare()
        try:
            return _obey(argv)
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:
        return clusters.INTERRUPTED_CODE
    except BrokenPipeError:  # the reader has enough
        output.silence()
        return 1
    except OSError as error:
        output.silence()
        output.say(file_words(error, error.filename or "the output"))
        return 2


def _obey(argv: Sequence[str] | None) -> int:
    """Carry out a command; return the exit code."""
    try:
        given = parser().parse_args(argv)
        action: Callable[[argparse.Namespace], int] = given.action
        return action(given)
    except RunStopped as error:
        output.say(str(error))
        return 1
    except (MwmagicError, FileNotFoundError) as error:
        output.say(str(error))
        return 2
    except clusters.Terminated as request:
        clusters.die(request)
        return 128 + request.number
