"""Dataclasses that are stored and sent as JSON, and can be read back even if damaged."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin, get_type_hints

from .values import decoded, encoded

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Self

__all__ = ["Measured", "Stored", "as_json"]

Measured = Annotated[float, "measured"]
"""A number that the user's code computed: unlike other numbers it may be infinite or NaN."""

INTEGER_LIMIT = 2**63
"""Larger integers are treated as corrupt: no counter reaches this value, and floats overflow."""


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
