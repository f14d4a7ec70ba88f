"""What the code of earlier runs imported, for a process that imports it ahead of the next run."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from mwmagic.model.text import is_module_name

from .paths import RunPaths, numbered

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["MODULE_COUNT", "latest_imports"]

RUN_COUNT = 10
"""How many runs are looked at: those that were killed have noted nothing."""

MODULE_COUNT = 500
"""The most modules that are taken from one."""

_READ_BYTES = 100 * MODULE_COUNT


def latest_imports(root: Path) -> list[str]:
    """Return the modules that the latest run recorded below `root` has noted, in their order."""
    for _, folder in reversed(numbered(root)[-RUN_COUNT:]):
        with suppress(OSError), RunPaths(folder).imports.open("rb") as file:
            return _names(file.read(_READ_BYTES))
    return []


def _names(data: bytes) -> list[str]:
    """Return the names in a file that any program may have written."""
    lines = data.decode("utf-8", "replace").splitlines()
    return [*filter(is_module_name, lines)][:MODULE_COUNT]
