"""The tasks of a run, started, failed and restarted together."""

from __future__ import annotations

from .events import (
    RESUME_CODE,
    Action,
    CancelTimer,
    End,
    EndAll,
    Ended,
    Event,
    Exited,
    Failure,
    Launch,
    Rebind,
    Restart,
    SetTimer,
    Start,
    State,
    Stop,
    Timer,
)
from .machine import PORT_TRIES, REPLACEMENTS, Gang, Policy, Role, roles

__all__ = [
    "PORT_TRIES",
    "REPLACEMENTS",
    "RESUME_CODE",
    "Action",
    "CancelTimer",
    "End",
    "EndAll",
    "Ended",
    "Event",
    "Exited",
    "Failure",
    "Gang",
    "Launch",
    "Policy",
    "Rebind",
    "Restart",
    "Role",
    "SetTimer",
    "Start",
    "State",
    "Stop",
    "Timer",
    "roles",
]
