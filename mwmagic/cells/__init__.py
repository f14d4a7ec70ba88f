"""The state machine of live cells: which task runs which cell, and which waits for which."""

from __future__ import annotations

from .events import (
    Answered,
    Await,
    CellAction,
    CellEvent,
    Done,
    Elapsed,
    Examine,
    Found,
    Gone,
    Interrupt,
    Ready,
    Refuse,
    Signal,
    Submit,
    Tell,
    Waits,
)
from .machine import Cells

__all__ = [
    "Answered",
    "Await",
    "CellAction",
    "CellEvent",
    "Cells",
    "Done",
    "Elapsed",
    "Examine",
    "Found",
    "Gone",
    "Interrupt",
    "Ready",
    "Refuse",
    "Signal",
    "Submit",
    "Tell",
    "Waits",
]
