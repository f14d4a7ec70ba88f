"""The line of a magic: its parser, its help, and what is wrong with it."""

from __future__ import annotations

import argparse
import shlex
from typing import Any, NoReturn

from mwmagic.errors import BadArguments

__all__ = ["HelpShown", "Parser"]


class HelpShown(Exception):
    """The help was asked for and has been printed."""


class Parser(argparse.ArgumentParser):
    """Parses a magic's line; raises one clear error where argparse would exit.

    Parameters
    ----------
    prog : str
        The magic as it is written: ``%mw_stop``, or ``%%mw_worker`` for one of a cell.
    description : str
        What it does.
    """

    def __init__(self, prog: str, description: str) -> None:
        super().__init__(prog=prog, description=description, allow_abbrev=False, add_help=False)
        self.add_argument("-h", "--help", action=_Help, help="Show this help.")

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
