"""Text and JSON values that every encoder and every reader accepts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from .numbers import encoded

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["counted", "encodable", "finite", "sendable"]

_LONE = re.compile("[\ud800-\udfff]")


def counted(number: int, what: str) -> str:
    """Return a number of things in words: ``1 task``, ``2,000 tasks``."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def encodable(text: str) -> str:
    """Return `text` with every lone surrogate replaced, since no encoder accepts those."""
    return text if text.isascii() else _LONE.sub("\N{REPLACEMENT CHARACTER}", text)


def finite(value: Any) -> Any:  # noqa: ANN401 - JSON values
    """Return JSON values with the numbers that JSON lacks spelled as `encoded` spells them."""
    return _mapped(value, _number)


def sendable(value: Any) -> Any:  # noqa: ANN401 - JSON values
    """Return JSON values that any encoder and any reader accepts: `finite` and `encodable`."""
    return _mapped(value, _leaf)


def _number(value: Any) -> Any:  # noqa: ANN401 - a JSON value
    return encoded(value) if isinstance(value, float) else value


def _leaf(value: Any) -> Any:  # noqa: ANN401 - a JSON value
    return encodable(value) if isinstance(value, str) else _number(value)


def _mapped(value: Any, leaf: Callable[[Any], Any]) -> Any:  # noqa: ANN401 - JSON values
    if isinstance(value, dict):
        return {leaf(key): _mapped(one, leaf) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_mapped(one, leaf) for one in value]
    return leaf(value)
