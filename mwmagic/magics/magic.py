"""A magic: its parser, its function, and what all of them have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mwmagic.errors import FileTrouble, MwmagicError
from mwmagic.words.file import file_words

from .parser import HelpShown, Parser
from .silence import silence

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable

    from .session import Session

__all__ = ["Magic", "magic"]


@dataclass(frozen=True)
class Magic:
    """A magic as its module declares it.

    Parameters
    ----------
    parser : Parser
        Its name, arguments and help.
    act : callable
        Called with the session, the arguments and the cell.
    shows : bool
        Whether it prints or displays its output; if not, the cell shows its result.
    """

    parser: Parser
    act: Callable[[Session, Namespace, str], Any]
    shows: bool = False

    def call(self, session: Session, line: str, cell: str) -> object:
        """Do what IPython was asked for with a line, and a cell below it."""
        try:
            given = self.parser.read(line)
        except HelpShown:
            return None
        return self._run(session, given, cell)

    def _run(self, session: Session, given: Namespace, cell: str) -> object:
        """Call the function, then apply the options that all magics share to its result."""
        session.quiet = given.quiet
        try:
            result = self.act(session, given, cell)
        except MwmagicError:
            raise
        except OSError as error:  # a directory or a record was removed or locked
            raise FileTrouble(file_words(error)) from error
        if given.out:
            session.shell.user_ns[given.out] = result
        if given.quiet or given.out or self.shows:
            silence(result)
        return result


def magic(
    parser: Parser, *, shows: bool = False
) -> Callable[[Callable[[Session, Namespace, str], Any]], Magic]:
    """Declare a function as a magic."""
    parser.add_argument("-o", "--out", metavar="VAR", help="Store the result in this variable.")
    parser.add_argument("--quiet", action="store_true", help="Show nothing.")
    return lambda act: Magic(parser, act, shows)
