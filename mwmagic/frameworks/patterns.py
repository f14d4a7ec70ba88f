"""The patterns of all frameworks as one regular expression."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from . import frameworks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .framework import Framework

__all__ = ["alternatives", "collected", "either"]

_NOTHING = r"(?!)"


def alternatives(patterns: Iterable[str]) -> str:
    """Return an expression that matches if any of `patterns` does; without any, it never does."""
    return "|".join(f"(?:{pattern})" for pattern in dict.fromkeys(patterns)) or _NOTHING


def collected(pick: Callable[[Framework], Iterable[str]]) -> list[str]:
    """Return what `pick` selects from each framework, without duplicates."""
    return list(dict.fromkeys(pattern for one in frameworks() for pattern in pick(one)))


def either(pick: Callable[[Framework], Iterable[str]], flags: int = 0) -> re.Pattern[str]:
    """Return an expression that matches any pattern that `pick` selects from the frameworks."""
    return re.compile(alternatives(collected(pick)), flags)
