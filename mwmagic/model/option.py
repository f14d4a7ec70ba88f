"""One option of a declaration: its meaning, its parsing and its allowed values."""

from __future__ import annotations

import math
import operator
import re
import shlex
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import Enum
from typing import TYPE_CHECKING, Any

from mwmagic.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

__all__ = [
    "Option",
    "Repeated",
    "check_seconds",
    "meant",
    "read_count",
    "read_duration",
    "read_list",
    "read_seconds",
    "read_setting",
    "read_words",
]


class Repeated(Enum):
    """What an option of a repeated declaration means for the running cluster."""

    MUST_MATCH = "must match"
    """A different value requires a new cluster, even the default of a complete declaration."""
    MUST_MATCH_IF_TYPED = "must match if typed"
    """A different value requires a new cluster only if it was typed."""
    UPDATE = "update"
    """The running cluster adopts a value that was typed, and keeps its own otherwise."""
    IGNORED = "ignored"
    """The option only identifies the cluster."""


@dataclass(frozen=True, kw_only=True)
class Option:
    """An option, with everything that parsers, checks and documentation need to know."""

    name: str
    """Its name, in Python and in ``%config``."""
    annotation: str
    kind: type
    """Its type as documentation shows it, and as it is checked: ``bool``, ``int``, ``float``,
    ``str``, ``tuple`` (of strings) or ``dict``."""
    default: Any
    help: str
    """One sentence, in the imperative if the option is a flag."""
    repeated: Repeated
    """What it means in a repeated declaration."""
    optional: bool = False
    """Whether None is allowed."""
    choices: tuple[str, ...] = ()
    """The allowed values, if they can be enumerated."""
    words: Mapping[str, int | tuple[()] | None] = field(default_factory=dict)
    """Words that may be typed in place of a number or a list, such as ``none``."""
    parse: Callable[[str], Any] | None = None
    allowed: str = ""
    """How its value is read from text, and what it may be, if its kind does not say."""
    metavar: str = ""
    """The placeholder for its value in the help."""
    flags: tuple[str, ...] = ()
    """Its spellings on the command line, if they do not follow from its name."""
    configurable: bool = False
    """Whether ``%config MWMagic.<name>`` sets its default."""
    notebook: bool = True
    command: bool = True
    """Whether ``%mw_cluster`` and ``mwmagic run`` take it."""
    engines: bool = False
    """Whether only the engines take it that say so."""

    @property
    def flag(self) -> str:
        """How it is written on a command line."""
        return f"--{self.name.replace('_', '-')}"

    def check(self, value: object) -> Any:  # noqa: ANN401 - of the option's own type
        """Return a value in the option's own type."""
        if value is None and self.optional:
            return None
        try:
            checked = _CHECKS[self.kind](value)
        except (TypeError, ValueError, OverflowError):
            raise self._refusal(value, ["None"] * self.optional) from None
        if self.choices and checked not in self.choices:
            raise self._refusal(value, [])
        return checked

    def read(self, text: str) -> Any:  # noqa: ANN401 - of the option's own type
        """Parse a value that was typed."""
        if text in self.words:
            return self.words[text]
        try:
            return self.check((self.parse or _READS.get(self.kind, str))(text))
        except (ClusterError, ValueError):
            raise self._refusal(text, list(self.words)) from None

    def _refusal(self, value: object, words: list[str]) -> ClusterError:
        allowed = " or ".join([self._allowed, *words])
        return ClusterError(
            f"{self.name} must be {allowed}, not {_short(value)}; the default is {self.default!r}"
        )

    @property
    def _allowed(self) -> str:
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        return self.allowed or _ALLOWED[self.kind]


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _VALUE_CHARACTERS else f"{text[:_VALUE_CHARACTERS]}..."


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _count(value: Any) -> int:  # noqa: ANN401 - checked here
    if isinstance(value, bool):
        raise TypeError
    count = operator.index(value)
    if count < 0:
        raise ValueError
    return count


def _seconds(value: Any) -> float:  # noqa: ANN401 - checked here
    if isinstance(value, bool | str | bytes):
        raise TypeError
    seconds = float(value)
    if not math.isfinite(seconds) or seconds < 0:
        raise ValueError
    return seconds


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise TypeError
    return value


def _strings(value: Any) -> tuple[str, ...]:  # noqa: ANN401 - checked here
    """Return several texts; one alone is none of them, since it is a sequence too."""
    if isinstance(value, str | bytes):
        raise TypeError
    return tuple(map(_text, value))


def _variables(value: Any) -> dict[str, str]:  # noqa: ANN401 - checked here
    """Return environment variables as text, also for ``{"EPOCHS": 3}``."""
    variables = {str(name): str(text) for name, text in dict(value).items()}
    for name, text in variables.items():
        if not name or "=" in name or "\0" in name + text:
            raise ValueError
    return variables


def check_seconds(name: str, value: object) -> float:
    """Return a number of seconds that a function was given."""
    try:
        return _seconds(value)
    except (TypeError, ValueError, OverflowError):
        raise ClusterError(f"{name} must be {_ALLOWED[float]}, not {_short(value)}") from None


def read_count(text: str) -> int:
    """Parse a whole number from 0."""
    try:
        return _count(int(text))
    except ValueError:
        raise ClusterError(f"{_short(text)} is not {_ALLOWED[int]}") from None


def read_seconds(text: str) -> float:
    """Parse a number of seconds."""
    try:
        return _seconds(float(text))
    except ValueError:
        raise ClusterError(f"{text!r} is not a number of seconds (0 or more)") from None


def read_duration(text: str) -> float:
    """Parse a duration, such as ``90``, ``30m``, ``1h30m`` or ``30d``, as seconds."""
    found = _DURATION.fullmatch(text)
    if found is None:
        return read_seconds(text)
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def read_list(text: str) -> tuple[str, ...]:
    """Parse values that commas separate."""
    return tuple(part.strip() for part in text.split(","))


def read_words(text: str) -> tuple[str, ...]:
    """Parse words as a shell would."""
    return tuple(shlex.split(text))


def read_setting(text: str) -> dict[str, str]:
    """Parse ``NAME=VALUE``."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ClusterError(f"{text!r} is not NAME=VALUE")
    return {name: value}


_VALUE_CHARACTERS = 80
"""How much of an invalid value its error message quotes."""

_DURATION = re.compile(
    r"(?=[0-9])(?:([0-9]+)d)?(?:([0-9]+)h)?(?:([0-9]+)m)?(?:([0-9]+)s)?", re.ASCII
)

_CHECKS: dict[type, Callable[[Any], Any]] = {
    bool: _flag,
    int: _count,
    float: _seconds,
    str: _text,
    tuple: _strings,
    dict: _variables,
}

_READS: dict[type, Callable[[str], Any]] = {
    int: int,
    float: float,
    tuple: read_list,
    dict: read_setting,
}

_ALLOWED = {
    bool: "True or False",
    int: "a whole number from 0",
    float: "a finite number from 0",
    str: "text that is not blank",
    tuple: "texts that are not blank",
    dict: "a mapping from the names of variables to their values",
}


CLOSE_LIMIT = 0.65
"""How alike two names must be, from 0 to 1, for one to be a misspelling of the other."""


def meant(name: str, known: Collection[str]) -> str | None:
    """Return the known name that `name` begins, or else the one most like it, if any is."""
    begun = [one for one in known if one.startswith(name)]
    found = begun or get_close_matches(name, known, 1, CLOSE_LIMIT)
    return found[0] if found else None
