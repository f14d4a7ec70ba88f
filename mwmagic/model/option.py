"""One option of a declaration: what it is, how it is read, and what it may be."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from mwmagic.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["Option", "Repeated", "read_seconds", "read_setting"]


class Repeated(Enum):
    """What an option of a repeated declaration means to the cluster that is running."""

    MUST_MATCH = "must match"
    """Another value needs another cluster; the default counts too where it is declared anew."""
    MUST_MATCH_IF_TYPED = "must match if typed"
    """A value that was typed and differs needs another cluster; the default asks for nothing."""
    UPDATE = "update"
    """The running cluster takes a value that was typed; what was not typed stays as it is."""
    IGNORED = "ignored"
    """It says which cluster is meant."""


@dataclass(frozen=True, kw_only=True)
class Option:
    """An option, with everything that parsers, checks and pages need to know of it.

    Parameters
    ----------
    name : str
        What it is called everywhere.
    annotation : str
        Its annotation.
    kind : type
        One of ``bool``, ``int``, ``float``, ``str`` and ``dict``.
    default : object
        Its value where it is left out.
    help : str
        One sentence, in the imperative where it is a flag.
    repeated : Repeated
        What it means in a repeated declaration.
    optional : bool
        Whether None is a value.
    choices : tuple of str
        Its values, where they are few.
    words : mapping
        Words that stand for a value where a number is read, such as ``none``.
    metavar : str
        What stands for its value in the help.
    flags : tuple of str
        What it is called on a line, where that does not follow from its name.
    configurable : bool
        Whether ``%config MWMagic.<name>`` sets its default.
    notebook, command : bool
        Whether ``%mw_cluster`` and ``mwmagic run`` take it.
    """

    name: str
    annotation: str
    kind: type
    default: Any
    help: str
    repeated: Repeated
    optional: bool = False
    choices: tuple[str, ...] = ()
    words: Mapping[str, int | None] = field(default_factory=dict)
    metavar: str = ""
    flags: tuple[str, ...] = ()
    configurable: bool = False
    notebook: bool = True
    command: bool = True

    def check(self, value: object) -> Any:  # noqa: ANN401 - of the option's own type
        """Return a value as the option keeps it.

        Raises
        ------
        ClusterError
            It is no value of this option.
        """
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
        """Return the value that was typed.

        Raises
        ------
        ClusterError
            It is no value of this option.
        """
        if text in self.words:
            return self.words[text]
        try:
            return self.check(_READS.get(self.kind, str)(text))
        except (ClusterError, ValueError):
            raise self._refusal(text, list(self.words)) from None

    def _refusal(self, value: object, words: list[str]) -> ClusterError:
        allowed = " or ".join([self._allowed, *words])
        return ClusterError(
            f"{self.name} must be {allowed}, not {_short(value)}; the default is {self.default!r}"
        )

    @property
    def _allowed(self) -> str:
        return f"one of {', '.join(self.choices)}" if self.choices else _ALLOWED[self.kind]


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


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


def _variables(value: Any) -> dict[str, str]:  # noqa: ANN401 - checked here
    """Return environment variables as text: ``{"EPOCHS": 3}`` means the obvious."""
    variables = {str(name): str(text) for name, text in dict(value).items()}
    for name, text in variables.items():
        if not name or "=" in name or "\0" in name + text:
            raise ValueError
    return variables


def read_seconds(text: str) -> float:
    """Read a time.

    Raises
    ------
    ClusterError
        It is no number of seconds.
    """
    try:
        return _seconds(float(text))
    except ValueError:
        raise ClusterError(f"{text!r} is not a finite number of seconds from 0") from None


def read_setting(text: str) -> dict[str, str]:
    """Read ``NAME=VALUE``.

    Raises
    ------
    ClusterError
        It is not that.
    """
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ClusterError(f"{text!r} is not NAME=VALUE")
    return {name: value}


_SHOWN = 80
"""Characters of a wrong value that its error repeats."""

_CHECKS: dict[type, Callable[[Any], Any]] = {
    bool: _flag,
    int: _count,
    float: _seconds,
    str: _text,
    dict: _variables,
}

_READS: dict[type, Callable[[str], Any]] = {int: int, float: float, dict: read_setting}

_ALLOWED = {
    bool: "True or False",
    int: "a whole number from 0",
    float: "a finite number from 0",
    str: "text that is not blank",
    dict: "a mapping from the names of variables to their values",
}
