"""The tasks of a run, which start, fail and restart together."""

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
