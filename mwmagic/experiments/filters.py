"""Filters such as ``units>=64 and state==finished``: parsed here, and never run as code."""

from __future__ import annotations

import re
from operator import eq, ge, gt, le, lt, ne
from typing import TYPE_CHECKING, Any

from mwmagic.errors import BadArguments
from mwmagic.model.option import meant

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

__all__ = ["Filter", "check_names"]

_TOKEN = re.compile(
    r"""\s*(?:(?P<text>"[^"]*"|'[^']*')|(?P<sign><=|>=|==|!=|=|<|>|~|\(|\))|(?P<word>\[[^\]]*\]|[^\s()<>=!~"']+))"""
)


def _holds(one: object, other: object) -> bool:
    """Return whether a text occurs in another one, whatever their case."""
    return str(other).lower() in str(one).lower()


_SIGNS = {"~": _holds, "=": eq, "==": eq, "!=": ne, "<": lt, "<=": le, ">": gt, ">=": ge}
_VALUES = {"true": True, "false": False, "none": None}

NESTING_LIMIT = 50
"""How deep parentheses may be nested."""


def check_names(names: Iterable[str], known: Collection[str]) -> None:
    """Raise BadArguments for names of facts, parameters and metrics that no run has."""
    for name in sorted(set(names) - set(known)):
        like = meant(name, sorted(known))
        hint = f"; did you mean {like}?" if like else ""
        there = ", ".join(sorted(known))
        raise BadArguments(f"no run here has {name!r}: there are {there}{hint}")


class Filter:
    """A condition on the facts of a run.

    Its text has comparisons of a name with a value, joined by ``and``, ``or``, ``not`` and
    parentheses; BadArguments is raised if it is not of this form.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _tokens(text)
        self._at = self._depth = 0
        self.names: set[str] = set()
        self._check = self._either()
        if self._at < len(self._tokens):
            raise self._wrong(f"at {self._tokens[self._at][1]!r}")

    def check_names(self, known: Collection[str]) -> None:
        """Raise BadArguments for names that no run has."""
        check_names(self.names, known)

    def __call__(self, facts: Mapping[str, Any]) -> bool:
        """Return whether a run is to be shown; a comparison with what it lacks is false."""
        return self._check(facts)

    def _wrong(self, where: str) -> BadArguments:
        return BadArguments(
            f"the filter {self._text!r} cannot be read {where}: write comparisons as "
            "units>=64 and state==finished"
        )

    def _peek(self) -> tuple[str, str]:
        return self._tokens[self._at] if self._at < len(self._tokens) else ("", "")

    def _accept(self, kind: str, *values: str) -> str | None:
        """Return the next token if it is of a kind, and one of some values; and go past it."""
        found, value = self._peek()
        if found != kind or (values and value.lower() not in values):
            return None
        self._at += 1
        return value

    def _either(self) -> Callable[[Mapping[str, Any]], bool]:
        sides = [self._both()]
        while self._accept("word", "or"):
            sides.append(self._both())
        return lambda facts: any(side(facts) for side in sides)

    def _both(self) -> Callable[[Mapping[str, Any]], bool]:
        sides = [self._one()]
        while self._accept("word", "and"):
            sides.append(self._one())
        return lambda facts: all(side(facts) for side in sides)

    def _one(self) -> Callable[[Mapping[str, Any]], bool]:
        self._depth += 1
        if self._depth > NESTING_LIMIT:
            raise self._wrong("as it is nested too deeply")
        try:
            if self._accept("word", "not"):
                inner = self._one()
                return lambda facts: not inner(facts)
            if self._accept("sign", "("):
                inner = self._either()
                if not self._accept("sign", ")"):
                    raise self._wrong("as a ) is missing")
                return inner
            return self._comparison()
        finally:
            self._depth -= 1

    def _comparison(self) -> Callable[[Mapping[str, Any]], bool]:
        name = self._accept("word")
        sign = self._accept("sign", *_SIGNS) if name else None
        value, text = self._value() if sign else (None, "")
        if name is None or sign is None:
            raise self._wrong(f"at {self._peek()[1]!r}" if self._peek()[1] else "at its end")
        self.names.add(name)
        compare = _SIGNS[sign]
        return lambda facts: name in facts and _compared(compare, facts[name], value, text)

    def _value(self) -> tuple[Any, str]:
        """Return the literal that is next, and its text."""
        kind, text = self._peek()
        if kind not in ("word", "text"):
            raise self._wrong(f"at {text!r}" if text else "at its end")
        self._at += 1
        return (text[1:-1], text[1:-1]) if kind == "text" else (_number(text), text)


def _tokens(text: str) -> list[tuple[str, str]]:
    found, at = [], 0
    while text[at:].strip():
        match = _TOKEN.match(text, at)
        if match is None:
            raise BadArguments(
                f"the filter {text!r} cannot be read at {text[at:].strip()[:20]!r}: write "
                "comparisons as units>=64 and state==finished"
            )
        at = match.end()
        found.append((match.lastgroup or "", match[match.lastgroup or 0]))
    return found


def _number(text: str) -> Any:  # noqa: ANN401 - any literal
    if text.lower() in _VALUES:
        return _VALUES[text.lower()]
    try:
        return float(text) if "." in text or "e" in text.lower() else int(text)
    except ValueError:
        return text


def _compared(compare: Callable[[Any, Any], Any], one: object, other: object, text: str) -> bool:
    """Compare a fact with a value; a text, a tag or a list with what was typed."""
    if isinstance(one, frozenset):  # of tags: it is compared with each
        found = any(_compared(eq if compare is ne else compare, each, other, text) for each in one)
        return found != (compare is ne)
    if isinstance(one, str):
        other = text
    if isinstance(one, list | tuple):
        one, other = (re.sub(r"[\s'\"]", "", word) for word in (str(list(one)), text))
    try:
        return bool(compare(one, other))
    except TypeError:  # a number and a text
        return compare is ne
