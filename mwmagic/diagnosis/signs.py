"""Recognises known failures by what a task said and how it behaved."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from mwmagic.model.symptom import Finding

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .known import Known

__all__ = ["Match", "recognise"]

GAP = "..."
"""What stands for anything in a sign."""

GAP_CHARACTERS = 4000
"""Characters between two parts of a sign at the most."""


@cache
def _pattern(sign: str) -> re.Pattern[str]:
    """Return the regular expression of a sign; its groups are what the gaps stand for.

    A gap at the end is the rest of the line, others are as short as can be.
    """
    head, *tail = (re.escape(part) for part in sign.split(GAP))
    gaps = [rf"(.{{0,{GAP_CHARACTERS}}}?){part}" if part else r"([^\n]*)" for part in tail]
    return re.compile(head + "".join(gaps), re.DOTALL)


@dataclass(frozen=True)
class Match:
    """An entry that was recognised.

    Parameters
    ----------
    known : Known
        The entry.
    gaps : tuple of str
        What the gaps of its sign stand for.
    """

    known: Known
    gaps: tuple[str, ...] = ()


def _match(known: Known, evidence: str | Finding) -> Match | None:
    if isinstance(evidence, Finding):
        return Match(known) if any(one.matches(evidence) for one in known.symptoms) else None
    for sign in known.signs:
        match = _pattern(sign).search(evidence)
        if match is not None:
            return Match(known, tuple(word.strip() for word in match.groups()))
    return None


def recognise(table: Iterable[Known], evidence: Iterable[str | Finding]) -> Match | None:
    """Return the first entry that the first telling piece of evidence shows.

    Parameters
    ----------
    table : iterable of Known
        The entries, in the order in which they are tried.
    evidence : iterable of str or Finding
        Foreign text, and what was observed; the most telling first.
    """
    entries = list(table)
    found = (_match(known, one) for one in evidence for known in entries)
    return next((match for match in found if match is not None), None)
