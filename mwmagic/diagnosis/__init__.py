"""Why a run failed."""

from __future__ import annotations

from .exit import Exit
from .first import diagnose, involves_others, kind
from .observation import Observation, is_notable, remarks, why_stalled

__all__ = [
    "Exit",
    "Observation",
    "diagnose",
    "involves_others",
    "is_notable",
    "kind",
    "remarks",
    "why_stalled",
]
