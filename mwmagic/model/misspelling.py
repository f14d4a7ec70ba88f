"""Misspelled names: which known one was probably meant."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["meant"]

CLOSE_LIMIT = 0.65
"""How alike two names must be, from 0 to 1, for one to be a misspelling of the other."""


def meant(name: str, known: Collection[str]) -> str | None:
    """Return the known name that `name` begins, or else the one most like it, if any is."""
    begun = [one for one in known if one.startswith(name)]
    found = begun or get_close_matches(name, known, 1, CLOSE_LIMIT)
    return found[0] if found else None
