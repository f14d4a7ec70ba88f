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
    """Without the wait for other tasks; with what the main thread slept or read outside them."""
    cpu: float = 0.0
    """CPU time of all threads."""
    faults: float = 0.0
    """Pages that had to be read from a disk."""
    waits: float | None = None
    """The time in which it waited for other tasks; None if that is not known."""
    queued: float = 0.0
    """The time in which its threads wanted a CPU and none of them had one."""
    held: float = 0.0
    """The time in which it was not allowed to run at all."""
    throttled: float = 0.0
    """As `held`, by the account of its control group."""
    own: float = 0.0
    """The time in which the user's code slept or read something, outside input and callbacks."""
    collected: float = 0.0
    """Python's garbage collection."""
    traced: float = 0.0
    """TensorFlow's tracing of functions."""
    sending: float = 0.0
    sent: float = 0.0
    """How long data was underway to `peer`, and the bytes of it."""
    peer: str | None = None
    """The address of the host to which sending took longest."""
    at_input: str | None = None
    at_main: str | None = None
    at_own: str | None = None
    """The user's lines, as ``file:line in function``, that the input pipeline, the callbacks and
    `own` were seen in most often."""


class SlowCause(str, Enum):
    """Why steps take longer than they need to."""

    INPUT_WAITS = "input-waits"
    INPUT_COMPUTES = "input-computes"
    CALLBACKS = "callbacks"
    CODE_WAITS = "code-waits"
    GARBAGE = "garbage"
    TRACING = "tracing"
    MORE_WORK = "more-work"
    NEIGHBOUR = "neighbour"
    THROTTLED = "throttled"
    STOPPED = "stopped"
    PAGING = "paging"
    COLLECTIVE = "collective"
    LINK = "link"
    UNCLEAR = "unclear"


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
    sent: float = 0.0
    rate: float = 0.0
    peer: str | None = None
    """How many bytes each step sends over the link that takes longest, how many of them it carries
    in a second, and the address of its other end."""

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
