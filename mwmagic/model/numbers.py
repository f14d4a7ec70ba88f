"""Numbers as JSON carries them, and the limits of what a task may report.

JSON has no literals for NaN and the infinities. Python writes some anyway, which other
readers reject, so they are written as strings, as in protobuf's JSON mapping.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "METRICS_LIMIT",
    "NAME_CHARACTERS",
    "REPORT_BYTES",
    "decoded",
    "decoded_all",
    "encoded",
    "encoded_all",
]

NAME_CHARACTERS = 100
"""The longest name of a metric."""

METRICS_LIMIT = 100
"""The most metrics that one report may have."""

REPORT_BYTES = 32 * 2**10
"""The largest report that is sent to the supervisor."""

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
