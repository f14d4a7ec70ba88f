"""Where the time of training steps goes, and which task holds up the others."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal

from .values import Stored

__all__ = ["MemoryForecast", "SlowCause", "Slowdown", "Window"]


@dataclass(frozen=True)
class Window(Stored):
    """The means over some steps in a row of one task, in seconds of each step.

    `first` is the step before the first of them, counted over a whole `fit`.
    """

    first: int = 0
    steps: int = 1
    wall: float = 0.0
    input: float = 0.0
    """The wait for the next batch."""
    callbacks: float = 0.0
    """Without the wait for other tasks."""
    cpu: float = 0.0
    """CPU time of all threads."""
    faults: float = 0.0
    """Pages that had to be read from a disk."""
    at_input: str | None = None
    at_main: str | None = None
    """The user's lines, as ``file:line in function``, that the input pipeline and the training loop
    were seen in most often."""


class SlowCause(str, Enum):
    """Why steps take longer than they need to."""

    INPUT_WAITS = "input-waits"
    INPUT_COMPUTES = "input-computes"
    CALLBACKS = "callbacks"
    MORE_WORK = "more-work"
    STOPPED = "stopped"
    PAGING = "paging"


@dataclass(frozen=True)
class Slowdown(Stored):
    """What makes training slower than it needs to be.

    `task` is the task that the others wait for; None if all of them lose the same time. `when` says
    whether that is so in every step, only in some, or in turn for each task.
    """

    cause: SlowCause = SlowCause.INPUT_WAITS
    task: str | None = None
    when: Literal["always", "sometimes", "in-turn"] = "always"
    share: float = 0.0
    """The part of a step that is lost, as far as it is known."""
    step: float = 0.0
    """Seconds that a step takes."""
    at: str | None = None
    """The line of the user's code, as in `Window`."""
    times: float | None = None
    """How many times as much CPU time as the others a task uses that has more to compute."""

    @property
    def without(self) -> float:
        """Seconds that a step would take without it."""
        return self.step * (1 - self.share)


@dataclass(frozen=True)
class MemoryForecast(Stored):
    """A task whose memory grows by so many bytes in each epoch, and how many epochs fit yet."""

    task: str = ""
    per_epoch: float = 0.0
    epochs: int = 0
