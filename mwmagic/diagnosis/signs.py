"""Finds the signs of known failures in what a task said."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .table import Known

__all__ = ["recognise"]

GAP = "..."
"""What stands for anything in a sign."""

WIDEST = 4000
"""Characters between two parts of a sign at the most."""


@cache
def _pattern(sign: str) -> re.Pattern[str]:
    """Return the regular expression of a sign; its groups are what the gaps stand for.

    A gap at the end is the rest of the line, others are as short as can be.
    """
    head, *tail = (re.escape(part) for part in sign.split(GAP))
    gaps = [rf"(.{{0,{WIDEST}}}?){part}" if part else r"([^\n]*)" for part in tail]
    return re.compile(head + "".join(gaps), re.DOTALL)


def _filled(known: Known, match: re.Match[str]) -> Known:
    """Return an entry with what its sign's gaps stand for."""
    words = [word.strip() for word in match.groups()]
    meaning, remedy = (
        re.sub(r"\{(\d)\}", lambda gap: words[int(gap[1])], text)
        for text in (known.meaning, known.remedy)
    )
    return replace(known, meaning=meaning, remedy=remedy)


def recognise(table: Iterable[Known], texts: Iterable[str]) -> Known | None:
    """Return the first entry with a sign in the first text that has any.

    Parameters
    ----------
    table : iterable of Known
        The entries, in the order in which they are tried.
    texts : iterable of str
        What to look into, the most telling first.
    """
    entries = list(table)
    for text in texts:
        for known in entries:
            for sign in known.signs:
                match = _pattern(sign).search(text)
                if match is not None:
                    return _filled(known, match)
    return None
