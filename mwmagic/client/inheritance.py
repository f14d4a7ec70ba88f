"""What workers inherit of the process that launches them: they are as if it had started them."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import Any

from mwmagic.frameworks.environment import set_by_user

__all__ = ["attributes", "inherited"]

_LIMITS = tuple(
    name
    for name in dir(resource)
    if name.startswith("RLIMIT_") and name not in ("RLIMIT_OFILE", "RLIMIT_RTTIME")
)
"""The limits that a worker gets: not two names of one, nor the one that agents tell workers by."""


def inherited() -> dict[str, str]:
    """Return this process's environment, without what the import of a framework set."""
    return set_by_user(os.environ)


def attributes() -> dict[str, Any]:
    """Return what else a process has from the one that starts it."""
    status = Path("/proc/self/status").read_text()  # to ask the system is to change it
    umask = next((one.split()[1] for one in status.splitlines() if one.startswith("Umask:")), None)
    limits = {name: list(resource.getrlimit(getattr(resource, name))) for name in _LIMITS}
    found: dict[str, Any] = {"limits": limits, "nice": os.getpriority(os.PRIO_PROCESS, os.getpid())}
    return found if umask is None else {**found, "umask": int(umask, 8)}
