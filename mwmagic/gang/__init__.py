"""The tasks of a run, which start, fail and restart together.

`machine` is the state machine, `events` its input and output, and `policy` says what each exit
means for the others, how often a gang restarts, and whether its attempts come further. It does no
input or output, and is tested by simulation.
"""

from __future__ import annotations

from . import events
from .events import *  # noqa: F403 - every event and action is a word of this room
from .machine import Gang
from .policy import (
    PORT_TRIES,
    REPLACEMENT_TRIES,
    AttemptProgress,
    Policy,
    Role,
    TrainingPoint,
    roles,
)

__all__ = [
    "PORT_TRIES",
    "REPLACEMENT_TRIES",
    "AttemptProgress",
    "Gang",
    "Policy",
    "Role",
    "TrainingPoint",
    "roles",
]
__all__ += events.__all__
