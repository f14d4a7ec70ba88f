"""What can be measured, and what a measurement finds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class Skipped(Exception):
    """A case, or what it is compared with, cannot be measured here; the text says why."""


@dataclass(frozen=True)
class Plan:
    """How thoroughly to measure.

    Attributes
    ----------
    quick : bool
        Whether the whole table should take about five minutes.
    asked : int or None
        The number of rounds that the user chose.
    """

    quick: bool = False
    asked: int | None = None

    def rounds(self, full, quick=2):
        """Return how often to measure."""
        return self.asked or (quick if self.quick else full)


@dataclass
class Line:
    """One row: mwmagic's figures and those of something else, measured in turn.

    Attributes
    ----------
    what : str
        What is measured.
    unit : str
        Of the figures.
    ours, theirs : list of float
        A figure for each round; less is better. `theirs` is empty where there is nothing to
        compare with.
    against : str
        What mwmagic is compared with.
    aim : float or None
        What the ratio should be at most.
    note : str
        What else the table says about this row.
    """

    what: str
    unit: str
    ours: list[float]
    against: str = ""
    theirs: list[float] = field(default_factory=list)
    aim: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Case:
    """What is measured together, in a process of its own.

    Attributes
    ----------
    name : str
        How the command line names it.
    about : str
        What it measures, for ``--list``.
    measure : callable
        Measures and returns the lines.
    slow : bool
        Whether ``--quick`` leaves it out unless it is named.
    """

    name: str
    about: str
    measure: Callable[[Plan], Iterable[Line]]
    slow: bool = False
