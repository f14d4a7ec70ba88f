"""Text and JSON values that every encoder and every reader accepts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from .numbers import encoded

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["encodable", "finite", "is_module_name", "package_of", "sendable"]

_LONE = re.compile("[\ud800-\udfff]")


def encodable(text: str) -> str:
    """Return `text` with every lone surrogate replaced, since no encoder accepts those."""
    return text if text.isascii() else _LONE.sub("\N{REPLACEMENT CHARACTER}", text)


def is_module_name(text: str) -> bool:
    """Return whether a text may be the name of a module, as ``import`` has it."""
    return all(part.isidentifier() for part in text.split("."))


def package_of(module: str) -> str:
    """Return the topmost package of a module's name, or the name itself."""
    return module.partition(".")[0]


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
