"""Values as JSON carries them, and the limits of what a task may report.

JSON has no literals for NaN and the infinities. Python writes some anyway, which other
readers reject, so they are written as strings, as in protobuf's JSON mapping. Dataclasses are
stored and sent as JSON too, and can be read back even if damaged.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Self

__all__ = [
    "METRICS_LIMIT",
    "NAME_CHARACTERS",
    "NOT_FINITE",
    "REPORT_BYTES",
    "Measured",
    "Stored",
    "as_json",
    "counted",
    "decoded",
    "decoded_all",
    "encodable",
    "encoded",
    "encoded_all",
    "finite",
    "sendable",
]

NAME_CHARACTERS = 100
"""The longest name of a metric."""

METRICS_LIMIT = 100
"""The most metrics that one report may have."""

REPORT_BYTES = 32 * 2**10
"""The largest report that is sent to the supervisor."""

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")

NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""How the numbers are spelled that JSON lacks."""

Measured = Annotated[float, "measured"]
"""A number that the user's code computed: unlike other numbers it may be infinite or NaN."""

INTEGER_LIMIT = 2**63
"""Larger integers are treated as corrupt: no counter reaches this value, and floats overflow."""


def encoded(number: float) -> float | str:
    """Return a number as a JSON value."""
    if math.isfinite(number):
        return number
    if math.isnan(number):
        return "NaN"
    return "Infinity" if number > 0 else "-Infinity"


def decoded(value: object) -> float:
    """Return the number that a JSON value stands for."""
    if isinstance(value, str) and value in NOT_FINITE:
        return NOT_FINITE[value]
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"not a number: {value!r:.100}")  # noqa: TRY004 - one error for all
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"number too large: {value!r:.20}...") from None


def encoded_all(metrics: Mapping[str, float]) -> dict[str, float | str]:
    """Return metrics as JSON values."""
    return {name: encoded(number) for name, number in metrics.items()}


def decoded_all(metrics: Mapping[str, object]) -> dict[str, float]:
    """Return the metrics that JSON values stand for; see `decoded` for the error."""
    return {name: decoded(value) for name, value in metrics.items()}


def counted(number: int, what: str) -> str:
    """Return a number of things in words: ``1 task``, ``2,000 tasks``."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def encodable(text: str) -> str:
    """Return `text` with every lone surrogate replaced, since no encoder accepts those."""
    return text if text.isascii() else _LONE_SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text)


def finite(value: Any) -> Any:  # noqa: ANN401 - JSON values
    """Return JSON values with the numbers that JSON lacks spelled as `encoded` spells them."""
    return _mapped(value, _spelled)


def sendable(value: Any) -> Any:  # noqa: ANN401 - JSON values
    """Return JSON values that any encoder and any reader accepts: `finite` and `encodable`."""
    return _mapped(value, _leaf)


def _spelled(value: Any) -> Any:  # noqa: ANN401 - a JSON value
    return encoded(value) if isinstance(value, float) else value


def _leaf(value: Any) -> Any:  # noqa: ANN401 - a JSON value
    return encodable(value) if isinstance(value, str) else _spelled(value)


def _mapped(value: Any, leaf: Callable[[Any], Any]) -> Any:  # noqa: ANN401 - JSON values
    if isinstance(value, dict):
        return {leaf(key): _mapped(one, leaf) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_mapped(one, leaf) for one in value]
    return leaf(value)


class Stored:
    """A dataclass whose annotations determine how it is read back."""

    def as_json(self) -> dict[str, Any]:
        """Return JSON values, which are valid JSON even if a number is not finite."""
        values: dict[str, Any] = as_json(self)
        return values

    @classmethod
    def from_json(cls, values: object) -> Self:
        """Return an object from what `as_json` returned; every field must have a default.

        A record may be older, newer or damaged: unknown fields are ignored, and
        a field that is missing or of the wrong type gets its default.
        """
        kind: Any = cls
        read: Self = _object(kind)(values if isinstance(values, Mapping) else {})
        return read


def as_json(value: object) -> Any:  # noqa: ANN401 - JSON values
    """Return dataclasses, enums and containers as JSON values."""
    if type(value) in _PLAIN:  # most are, and a snapshot of 1,000 tasks has 50,000
        return value
    if isinstance(value, float | Enum):
        return encoded(value) if isinstance(value, float) else value.value
    if isinstance(value, Mapping):
        return {str(name): as_json(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(one) for one in value]
    if not is_dataclass(value):
        return value
    kind: Any = type(value)
    return {name: as_json(getattr(value, name)) for name in _names(kind)}


_PLAIN = frozenset({str, int, bool, NoneType})
"""The types whose values are JSON values."""


@cache
def _names(kind: Any) -> tuple[str, ...]:  # noqa: ANN401 - a dataclass
    """Return the names of a dataclass's fields."""
    return tuple(one.name for one in fields(kind))


_UNREADABLE = (TypeError, ValueError, OverflowError)
"""What a reader raises if a value is not of its type."""


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _integer(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError
    if abs(value) >= INTEGER_LIMIT:
        raise OverflowError
    return value


def _number(value: object) -> float:
    number = _measured(value)
    if not math.isfinite(number):
        raise ValueError
    return number


def _measured(value: object) -> float:
    return decoded(value)


_READERS: dict[object, Callable[[object], Any]] = {
    str: _text,
    bool: _flag,
    int: _integer,
    float: _number,
    Measured: _measured,
    Any: lambda value: value,
}


@cache
def _reader(hint: Any) -> Callable[[object], Any]:  # noqa: ANN401 - an annotation
    """Return a reader for values of an annotated type."""
    if hint in _READERS:
        return _READERS[hint]
    if get_origin(hint) is tuple:
        return _tuple(_reader(get_args(hint)[0]))
    if get_origin(hint) is dict:
        return _dict(_reader(get_args(hint)[1]))
    if get_origin(hint) is Literal:
        return _one_of(get_args(hint))
    if NoneType in get_args(hint):
        return _optional(_reader(next(one for one in get_args(hint) if one is not NoneType)))
    read: Callable[[object], Any] = hint if issubclass(hint, Enum) else _object(hint)
    return read


def _optional(read: Callable[[object], Any]) -> Callable[[object], Any]:
    return lambda value: None if value is None else read(value)


def _one_of(words: tuple[str, ...]) -> Callable[[object], str]:
    def word(value: object) -> str:
        if not isinstance(value, str) or value not in words:
            raise ValueError
        return value

    return word


def _tuple(read: Callable[[object], Any]) -> Callable[[object], tuple[Any, ...]]:
    def items(values: object) -> tuple[Any, ...]:
        if not isinstance(values, list | tuple):
            raise TypeError
        return tuple(found for value in values for found in _readable(read, value))

    return items


def _dict(read: Callable[[object], Any]) -> Callable[[object], dict[str, Any]]:
    def entries(values: object) -> dict[str, Any]:
        if not isinstance(values, Mapping):
            raise TypeError
        return {
            str(name): found for name, value in values.items() for found in _readable(read, value)
        }

    return entries


def _readable(read: Callable[[object], Any], value: object) -> list[Any]:
    """Return a list of the value that was read, empty if it could not be."""
    try:
        return [read(value)]
    except _UNREADABLE:
        return []


@cache
def _object(kind: Any) -> Callable[[object], Any]:  # noqa: ANN401 - a dataclass
    """Return a reader for a dataclass; it raises if a field without a default is unreadable."""
    hints = get_type_hints(kind, include_extras=True)
    readers = [(one.name, _reader(hints[one.name])) for one in fields(kind) if one.init]
    required = {
        one.name
        for one in fields(kind)
        if one.default is MISSING and one.default_factory is MISSING
    }

    def read(values: object) -> object:
        if not isinstance(values, Mapping):
            raise TypeError
        found = {}
        for name, reader in readers:
            if name in values:
                try:
                    found[name] = reader(values[name])
                except _UNREADABLE:
                    continue
        if not required <= found.keys():
            raise ValueError
        return kind(**found)

    return read
