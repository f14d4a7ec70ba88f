"""Which magics there are, and what a magic is: its parser with its help, and its function.

IPython knows each as an `Entry` before its module is imported.
"""

from __future__ import annotations

import argparse
import inspect
import shlex
import sys
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

from mwmagic.client.arguments import ConciseParser
from mwmagic.errors import BadArguments, FileTrouble, MwmagicError, WaitInterrupted
from mwmagic.words.file import file_words

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Sequence

    from .session import Session

__all__ = ["NAMES", "Entry", "Magic", "Parser", "find", "magic", "silence"]

_MODULES = {
    "%mw_cluster": "cluster",
    "%%mw_worker": "worker",
    "%mw_wait": "worker",
    "%%mw_live": "live",
    "%mw_push": "live",
    "%mw_pull": "live",
    "%mw_debug": "live",
    "%mw_reset": "live",
    "%mw_status": "records",
    "%mw_show": "records",
    "%mw_profile": "records",
    "%mw_logs": "records",
    "%mw_stop": "cluster",
    "%mw_restart": "worker",
    "%mw_rerun": "worker",
    "%mw_sweep": "sweep",
    "%mw_scale": "sweep",
    "%mw_kill": "cluster",
    "%mw_stacks": "records",
    "%mw_runs": "records",
    "%mw_compare": "records",
    "%mw_note": "records",
    "%mw_tag": "records",
    "%mw_gc": "records",
    "%mw_fetch": "live",
    "%mw_export": "records",
}

NAMES = tuple(_MODULES)
"""Every magic as it is written, in the order of the reference."""


@cache
def find(written: str) -> Magic:
    """Return a magic, such as ``%mw_cluster`` or ``%%mw_worker``."""
    module = import_module(f".{_MODULES[written]}", __package__)
    found: Magic = getattr(module, written.lstrip("%"))
    return found


@dataclass(frozen=True)
class Magic:
    """A magic as its module declares it."""

    parser: Parser
    act: Callable[[Session, Namespace, str], Any]
    """Called with the session, the arguments and the cell."""
    shows: bool = False
    """Whether it prints or displays its output; if not, the cell shows its result."""


def magic(
    parser: Parser, *, shows: bool = False
) -> Callable[[Callable[[Session, Namespace, str], Any]], Magic]:
    """Declare a function as a magic."""
    parser.add_argument("-o", "--out", metavar="VAR", help="Store the result in this variable.")
    parser.add_argument("--quiet", action="store_true", help="Show nothing.")
    return lambda act: Magic(parser, act, shows)


_CALLS = {"run_line_magic", "run_cell_magic"}
"""What IPython turns a magic into, from 7.34 to 9."""


def silence(result: object) -> None:
    """Keep the cell from showing a result if its last line is the magic itself.

    A variable that the result was assigned to may still be shown. IPython puts its own hook
    in place for each cell, so what is set here does not outlast the cell.
    """
    show = sys.displayhook

    def hook(value: object) -> None:
        sys.displayhook = show
        if value is not result or not _CALLS & _names():
            show(value)

    sys.displayhook = hook


def _names() -> set[str]:
    """Return the names in the expression whose value a hook is called with."""
    frame = inspect.currentframe()
    for _ in range(2):  # this function's and the hook's
        frame = frame and frame.f_back
    return set(frame.f_code.co_names) if frame else set()


class _HelpShown(Exception):
    """The help was requested and has been printed."""


class Parser(ConciseParser):
    """Parses a magic's line; raises one clear error where argparse would exit."""

    def __init__(
        self,
        prog: str,
        description: str,
        rest: str = "",
        typed: Callable[[list[str]], list[str]] | None = None,
    ) -> None:
        super().__init__(prog=prog, description=description, allow_abbrev=False, add_help=False)
        self.rest = rest
        self.typed = typed
        self.add_argument("-h", "--help", action=_Help, help="Show this help.")

    def read(self, line: str) -> argparse.Namespace:
        """Parse the line of a magic; what follows ``#`` is a comment."""
        if self.typed is not None:
            return self._read_typed(line, self.typed)
        words = self._split(line)
        if not self.rest or "--" not in words:
            return self.parse_args(words)
        at = words.index("--")
        given = self.parse_args(words[:at])
        setattr(given, self.rest, (*getattr(given, self.rest, ()), *words[at + 1 :]))
        return given

    def _split(self, line: str) -> list[str]:
        try:
            return shlex.split(line, comments=True)
        except ValueError as error:
            self.error(f"{error} in {line!r}")

    def _read_typed(self, line: str, typed: Callable[[list[str]], list[str]]) -> argparse.Namespace:
        """Parse a line of expressions; options may stand before and after them."""
        words, options, expressions = _words_of(line), list[str](), list[str]()
        while words:
            word = words.pop(0)
            flag, equals, _ = word.partition("=")
            action = self._option_string_actions.get(flag)
            if action is None and not word.startswith("--"):
                expressions.append(word)
                continue
            options.append(word)
            if action is not None and action.nargs != 0 and not equals:
                options += words[:1]
                del words[:1]
        return self.parse_args([*self._split(" ".join(options)), "--", *typed(expressions)])

    def error(self, message: str) -> NoReturn:
        """Raise what argparse would print."""
        raise BadArguments(self.explained(message))

    def expected(self, words: Sequence[str]) -> argparse.Action | None:
        """Return the argument that the word after `words` is a value of, if there is one."""
        positionals = iter(self._get_positional_actions())
        pending, taken = next(positionals, None), False
        for word in words:
            action = self._option_string_actions.get(word)
            if taken:
                taken = False
            elif action is not None:
                taken = action.nargs != 0
            elif not word.startswith("-"):
                pending = next(positionals, None)
        return self._option_string_actions[words[-1]] if taken else pending


_OPENING, _CLOSING, _QUOTES = "([{", ")]}", "'\""


def _words_of(line: str) -> list[str]:
    """Return what white space parts in a line, but not within brackets or quotes of Python.

    Quotes stay, and what follows ``#`` is a comment.
    """
    words, word, depth, quote, escaped = list[str](), "", 0, "", False
    for character in line:
        if not quote and (character == "#" or (character.isspace() and depth <= 0)):
            words, word = [*words, word], ""
            if character == "#":
                break
            continue
        word += character
        if quote:
            quote = "" if character == quote and not escaped else quote
            escaped = character == "\\" and not escaped
        elif character in _QUOTES:
            quote = character
        else:
            depth += (character in _OPENING) - (character in _CLOSING)
    return [one for one in [*words, word] if one]


class _Help(argparse.Action):
    """Prints the help and ends the parsing."""

    def __init__(self, option_strings: list[str], dest: str, **rest: Any) -> None:  # noqa: ANN401
        super().__init__(option_strings, dest, nargs=0, **rest)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        parser.print_help()
        raise _HelpShown


class Entry:
    """What IPython calls, and whose documentation it shows: that of the magic."""

    def __init__(self, written: str, session: Callable[[], Session]) -> None:
        self.written = written
        self._session = session

    def __repr__(self) -> str:
        return f"<magic {self.written}>"

    def __call__(self, line: str, cell: str = "") -> object:
        """Do what the magic does with a line, and the cell below it, as all magics' options say."""
        try:
            one, session = find(self.written), self._session()
        except KeyboardInterrupt:  # while modules are imported, which the first one does
            raise WaitInterrupted(
                f"{self.written} was interrupted before it began, and did nothing; "
                "run the cell again"
            ) from None
        try:
            given = one.parser.read(line)
        except _HelpShown:
            return None
        session.quiet = given.quiet
        try:
            result = one.act(session, given, cell)
        except MwmagicError:
            raise
        except KeyboardInterrupt:
            raise WaitInterrupted(
                f"{one.parser.prog} was interrupted, and may have done a part of its work; "
                "`%mw_status` shows where the run is"
            ) from None
        except OSError as error:  # a directory or a record was removed or locked
            raise FileTrouble(file_words(error)) from error
        if given.out:
            session.shell.user_ns[given.out] = result
        if given.quiet or given.out or one.shows:
            silence(result)
        return result

    @property
    def name(self) -> str:
        """Its name, without the leading percent signs."""
        return self.written.lstrip("%")

    @property
    def kind(self) -> str:
        """``cell`` or ``line``."""
        return "cell" if self.written.startswith("%%") else "line"

    @property
    def _ipython_magic_no_var_expand(self) -> bool:
        """Whether IPython leaves braces and dollar signs in the line as they are typed."""
        return find(self.written).parser.typed is not None

    @property
    def __doc__(self) -> str:  # type: ignore[override]
        """Its help."""
        return find(self.written).parser.format_help()
