"""The line of a magic: its parser, its help, and what is wrong with it."""

from __future__ import annotations

import argparse
import shlex
from typing import TYPE_CHECKING, Any, NoReturn

from mwmagic.client.arguments import ConciseParser
from mwmagic.errors import BadArguments

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["HelpShown", "Parser", "words_of"]


class HelpShown(Exception):
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
        words, options, expressions = words_of(line), list[str](), list[str]()
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


def words_of(line: str) -> list[str]:
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
        raise HelpShown
