"""A list of names in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["names_words"]

NAMED_LIMIT = 6
"""How many names are told."""


def names_words(names: Iterable[str]) -> str:
    """List names: ``a, b and c``; of very many only the first, and the number of others."""
    every = list(names)
    told = every if len(every) <= NAMED_LIMIT else every[: NAMED_LIMIT - 1]
    left = len(every) - len(told)
    *first, last = [*told, *([f"{left} others"] if left else [])]
    return " and ".join([", ".join(first), last]) if first else last
