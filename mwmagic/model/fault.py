"""Bugs in mwmagic's parsers, which cost one line of a log but not the run."""

from __future__ import annotations

from dataclasses import dataclass

from .stored import Stored

__all__ = ["Fault"]


@dataclass(frozen=True)
class Fault(Stored):
    """An exception that a parser raised.

    Parameters
    ----------
    parser : str
        The parser's name.
    error : str
        The exception, with the line of code that raised it.
    """

    parser: str = ""
    error: str = ""
