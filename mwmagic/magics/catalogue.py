"""Which magics there are; the module of each is imported when it is first used."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .magic import Magic

__all__ = ["NAMES", "find"]

_HOMES = {
    "%mw_cluster": "cluster",
    "%%mw_worker": "worker",
    "%mw_wait": "worker",
    "%%mw_live": "live",
    "%mw_push": "transfer",
    "%mw_pull": "transfer",
    "%mw_debug": "live",
    "%mw_reset": "live",
    "%mw_status": "looking",
    "%mw_show": "show",
    "%mw_logs": "logs",
    "%mw_stop": "ending",
    "%mw_restart": "worker",
    "%mw_kill": "ending",
    "%mw_stacks": "looking",
    "%mw_runs": "looking",
    "%mw_fetch": "fetch",
    "%mw_export": "export",
}

NAMES = tuple(_HOMES)
"""Every magic as it is written, in the order of the reference."""


@cache
def find(written: str) -> Magic:
    """Return a magic, such as ``%mw_cluster`` or ``%%mw_worker``."""
    module = import_module(f".{_HOMES[written]}", __package__)
    found: Magic = getattr(module, written.lstrip("%"))
    return found
