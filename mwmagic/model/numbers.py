"""Numbers as JSON carries them, and the limits of what a task may report.

JSON has no literals for NaN and the infinities; Python writes some anyway, which other
readers refuse. They travel as the strings that protobuf's JSON mapping uses.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "METRICS",
    "NAME_CHARACTERS",
    "PACKET_BYTES",
    "decoded",
    "decoded_all",
    "encoded",
    "encoded_all",
]

NAME_CHARACTERS = 100
"""Characters of a metric's name at the most."""

METRICS = 100
"""Metrics in one report at the most."""

PACKET_BYTES = 32 * 2**10
"""Bytes of one report on its way to the supervisor at the most."""

_WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def encoded(number: float) -> float | str:
    """Return a number as a JSON value."""
    if math.isfinite(number):
        return number
    if math.isnan(number):
        return "NaN"
    return "Infinity" if number > 0 else "-Infinity"


def decoded(value: object) -> float:
    """Return the number that a JSON value stands for.

    Raises
    ------
    ValueError
        It stands for none.
    """
    if isinstance(value, str) and value in _WORDS:
        return _WORDS[value]
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"not a number: {value!r:.100}")  # noqa: TRY004 - one error for all
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"too large a number: {value!r:.20}...") from None


def encoded_all(metrics: Mapping[str, float]) -> dict[str, float | str]:
    """Return metrics as JSON values."""
    return {name: encoded(number) for name, number in metrics.items()}


def decoded_all(metrics: Mapping[str, object]) -> dict[str, float]:
    """Return the metrics that JSON values stand for; see `decoded` for the error."""
    return {name: decoded(value) for name, value in metrics.items()}
