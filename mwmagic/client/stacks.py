"""Where the tasks of a run are, as scripts and magics use it."""

from __future__ import annotations

from dataclasses import dataclass

from mwmagic.model.position import Examination
from mwmagic.words.failure import position

__all__ = ["Stacks"]


@dataclass(frozen=True)
class Stacks(Examination):
    """Where each task of a run is, those that hold up the others first."""

    @property
    def lines(self) -> list[str]:
        """Where each task is, in words."""
        return [position(one) for one in self.positions]

    def __str__(self) -> str:
        return "\n".join(self.lines)

    @property
    def full(self) -> str:
        """Where each task is, followed by the stacks of all its threads."""
        texts = (f"--- {task} ---\n{text}" for task, text in self.texts.items())
        return "\n".join([*self.lines, *texts])
