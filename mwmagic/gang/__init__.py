"""The tasks of a run, which start, fail and restart together."""

from __future__ import annotations

from .events import (
    Action,
    Backoff,
    CancelTimer,
    Due,
    End,
    EndAgain,
    EndAll,
    Ended,
    Event,
    Exited,
    Failure,
    Hurry,
    Launch,
    Rebind,
    Restart,
    SetTimer,
    Start,
    StartAlone,
    State,
    Stop,
    Timer,
)
from .machine import Gang
from .policy import PORT_TRIES, REPLACEMENT_TRIES, Policy
from .roles import Role, roles

__all__ = [
    "PORT_TRIES",
    "REPLACEMENT_TRIES",
    "Action",
    "Backoff",
    "CancelTimer",
    "Due",
    "End",
    "EndAgain",
    "EndAll",
    "Ended",
    "Event",
    "Exited",
    "Failure",
    "Gang",
    "Hurry",
    "Launch",
    "Policy",
    "Rebind",
    "Restart",
    "Role",
    "SetTimer",
    "Start",
    "StartAlone",
    "State",
    "Stop",
    "Timer",
    "roles",
]
