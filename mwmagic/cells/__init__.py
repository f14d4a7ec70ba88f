"""Which task runs which live cell, and which waits for which.

`machine` is the state machine, and `events` its input and output. It does no input or output, and
is tested by simulation.
"""

from __future__ import annotations

from mwmagic.recovery.plan import (
    Align,
    Aligned,
    Compare,
    Compared,
    Digest,
    Recovered,
    Rejoin,
    Rejoined,
    Standing,
    Unable,
)

from .events import (
    Abort,
    Answered,
    Arrived,
    Await,
    Bound,
    CellAction,
    CellEvent,
    Done,
    Elapsed,
    Examine,
    Found,
    Freed,
    Gone,
    Interrupt,
    Meet,
    Ready,
    Refuse,
    Signal,
    Submit,
    Tell,
    Waits,
)
from .machine import Cells

__all__ = [
    "Abort",
    "Align",
    "Aligned",
    "Answered",
    "Arrived",
    "Await",
    "Bound",
    "CellAction",
    "CellEvent",
    "Cells",
    "Compare",
    "Compared",
    "Digest",
    "Done",
    "Elapsed",
    "Examine",
    "Found",
    "Freed",
    "Gone",
    "Interrupt",
    "Meet",
    "Ready",
    "Recovered",
    "Refuse",
    "Rejoin",
    "Rejoined",
    "Signal",
    "Standing",
    "Submit",
    "Tell",
    "Unable",
    "Waits",
]
