"""The magics' arguments, their help, and what is wrong with them."""

from __future__ import annotations

import argparse
import shlex
from typing import Any, NoReturn

from mwmagic.client.export import KINDS
from mwmagic.errors import BadArguments
from mwmagic.model.options import cluster_options, setting

__all__ = ["PARSERS", "HelpShown", "Parser"]


class HelpShown(Exception):
    """The help was asked for and has been printed."""


class Parser(argparse.ArgumentParser):
    """Parses a magic's line; raises one clear error where argparse would exit."""

    def __init__(self, name: str, description: str) -> None:
        super().__init__(prog=name, description=description, allow_abbrev=False, add_help=False)
        self.add_argument("-h", "--help", action=_Help, help="show this help")

    def read(self, line: str) -> argparse.Namespace:
        """Parse the line of a magic; what follows ``#`` is a comment.

        Raises
        ------
        BadArguments
            The line is not what the magic takes.
        HelpShown
            It asked for the help.
        """
        try:
            words = shlex.split(line, comments=True)
        except ValueError as error:
            self.error(f"{error} in {line!r}")
        return self.parse_args(words)

    def error(self, message: str) -> NoReturn:
        """Raise what argparse would print."""
        usage = " ".join(self.format_usage().split())
        raise BadArguments(f"{self.prog}: {message}\n{usage}\n{self.prog} --help tells more")

    def flags(self) -> list[str]:
        """Return the options, as completion offers them."""
        return sorted(flag for flag in self._option_string_actions if flag.startswith("--"))

    def choices(self, flag: str) -> list[str]:
        """Return the values that an option takes, where they are few."""
        action = self._option_string_actions.get(flag)
        return [str(choice) for choice in (action and action.choices) or ()]


class _Help(argparse.Action):
    """Prints the help and ends the parsing."""

    def __init__(self, option_strings: list[str], dest: str, **rest: Any) -> None:  # noqa: ANN401
        super().__init__(option_strings, dest, nargs=0, **rest)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        parser.print_help()
        raise HelpShown


def _common(parser: Parser) -> Parser:
    parser.add_argument("-o", "--out", metavar="VAR", help="store the result in this variable")
    parser.add_argument("--quiet", action="store_true", help="show nothing")
    return parser


def _cluster() -> Parser:
    parser = Parser(
        "%mw_cluster",
        "Declare a cluster: hold a port for each task, warm up, show the addresses. "
        "Repeated, it reuses the one there is.",
    )
    add = parser.add_argument
    add("workers", nargs="?", type=int, metavar="N", help="how many workers")
    cluster_options(parser)
    add("--coordinator", action="store_true", help="the notebook itself is the chief")
    add("--name", help="under which it is found again")
    add("--no-warm", action="store_true", help="keep no process that has imported the framework")
    add("--detach", action="store_true", help="let the cluster outlive this kernel")
    return _common(parser)


def _worker() -> Parser:
    parser = Parser(
        "%%mw_worker",
        "Write the cell to a file and launch it, in the background: on every task, or on one, "
        "which joins the run whose other tasks other cells launch.",
    )
    add = parser.add_argument
    add("--index", type=int, metavar="I", help="launch it on this task only")
    add("--type", choices=["chief", "worker", "ps", "evaluator"], help="the task's type")
    add("--file", default="main.py", metavar="FILE", help="where to write the cell (main.py)")
    add("--args", default="", metavar="'A B'", help="the script's arguments, in quotes")
    add("--env", type=setting, action="append", metavar="K=V", help="a variable for the workers")
    add("--restarts", type=int, metavar="N", help="restarts of the gang after a failure")
    add("--wait", action="store_true", help="wait for the end, as %%mw_wait does")
    add("--timeout", type=float, metavar="S", help="with --wait: seconds to wait at the most")
    add("--no-run", action="store_true", help="only write the file")
    return _common(parser)


def _wait() -> Parser:
    parser = Parser(
        "%mw_wait", "Wait for the run; raise WorkerFailed, with the cause, if it fails."
    )
    parser.add_argument("--timeout", type=float, metavar="S", help="seconds to wait at the most")
    return _common(parser)


def _status() -> Parser:
    return _common(Parser("%mw_status", "Show the run and each of its tasks."))


def _logs() -> Parser:
    parser = Parser("%mw_logs", "Show what a task printed, as a terminal would.")
    add = parser.add_argument
    add("task", nargs="?", default=None, help="1, worker:1 or chief; by default every task")
    add("--raw", action="store_true", help="with TensorFlow's notices and every update of a bar")
    add("--ansi", action="store_true", help="keep the colours")
    add("--tail", type=int, default=1000, metavar="N", help="the last N lines (1000); 0 is all")
    add("--grep", metavar="PATTERN", help="only lines that match this regular expression")
    add("--follow", action="store_true", help="go on until the run is over")
    add("--run", type=int, metavar="NUMBER", help="of an earlier run; see %%mw_runs")
    add("--attempt", type=int, metavar="N", help="of an earlier attempt")
    return _common(parser)


def _stop() -> Parser:
    parser = Parser(
        "%mw_stop", "Stop the run; where nothing runs, end the cluster and free its ports."
    )
    add = parser.add_argument
    add("task", nargs="?", help="stop an evaluator, or a worker beside parameter servers, alone")
    add("--grace", type=float, metavar="S", help="seconds between SIGTERM and SIGKILL")
    add("--cluster", action="store_true", help="end the cluster too")
    return _common(parser)


def _runs() -> Parser:
    return _common(Parser("%mw_runs", "List the runs recorded here."))


def _restart() -> Parser:
    return _common(Parser("%mw_restart", "Start the gang again with the same code."))


def _stacks() -> Parser:
    parser = Parser("%mw_stacks", "Show where each task is: those that hold up the others first.")
    parser.add_argument("--full", action="store_true", help="with every thread's stack")
    return _common(parser)


def _export() -> Parser:
    parser = Parser(
        "%mw_export",
        "Write a script that does the latest run without mwmagic: for a shell, or for Slurm.",
    )
    parser.add_argument("kind", choices=KINDS, help="for the shell and one machine, or for sbatch")
    parser.add_argument("--file", metavar="FILE", help="where to write it (main.sh, main.sbatch)")
    return _common(parser)


def _kill() -> Parser:
    parser = Parser("%mw_kill", "Send a task's process a signal: a fault on purpose.")
    parser.add_argument("task", help="1, worker:1 or chief")
    parser.add_argument("--signal", default="KILL", help="its name or number (KILL)")
    return _common(parser)


PARSERS: dict[str, Parser] = {
    parser.prog.lstrip("%"): parser
    for parser in (
        _cluster(),
        _worker(),
        _wait(),
        _status(),
        _logs(),
        _stop(),
        _restart(),
        _kill(),
        _stacks(),
        _runs(),
        _export(),
    )
}
"""Each magic's parser, by the magic's name."""
