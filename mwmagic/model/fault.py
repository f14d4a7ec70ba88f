"""Faults of mwmagic's own, which cost a line and not the run."""

from __future__ import annotations

from dataclasses import dataclass

from .stored import Stored

__all__ = ["Fault"]


@dataclass(frozen=True)
class Fault(Stored):
    """What a parser raised.

    Parameters
    ----------
    parser : str
        Its name.
    error : str
        The exception, with the line of code that raised it.
    """

    parser: str = ""
    error: str = ""

    def __str__(self) -> str:
        return f"mwmagic's {self.parser} parser failed, and left something out: {self.error}"
