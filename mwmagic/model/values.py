"""Numbers and text as JSON carries them, and the limits of what a task may report.

JSON has no literals for NaN and the infinities. Python writes some anyway, which other
readers reject, so they are written as strings, as in protobuf's JSON mapping.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = [
    "METRICS_LIMIT",
    "NAME_CHARACTERS",
    "REPORT_BYTES",
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

_WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def encoded(number: float) -> float | str:
    """Return a number as a JSON value."""
    if math.isfinite(number):
        return number
    if math.isnan(number):
        return "NaN"
    return "Infinity" if number > 0 else "-Infinity"


def decoded(value: object) -> float:
    """Return the number that a JSON value stands for."""
    if isinstance(value, str) and value in _WORDS:
        return _WORDS[value]
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
