"""A folder for temporary files that nobody is left to remove if this process is killed."""

from __future__ import annotations

import os

from mwmagic.model import variables

__all__ = ["scratch"]


def scratch() -> str | None:
    """Return the folder that the agent removes after this process; None without an agent."""
    folder = os.environ.get(variables.SCRATCH)
    if folder is None:
        return None
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)  # noqa: PTH103 - it is a string
    except OSError:
        return None  # then Python finds one that can be written
    return folder
