"""Why a run failed."""

from __future__ import annotations

from mwmagic.model.cause import Cause

from .exit import Exit, describe
from .first import diagnose
from .kind import kind
from .seen import Notice, Seen, notices, why_stalled

__all__ = [
    "Cause",
    "Exit",
    "Notice",
    "Seen",
    "describe",
    "diagnose",
    "kind",
    "notices",
    "why_stalled",
]
