"""What the code of earlier runs imported, for a process that imports it ahead of the next run."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from mwmagic.model.module import is_module_name
from mwmagic.model.variables import NEW_IMPORT

from .paths import RunPaths, numbered

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["MODULE_COUNT", "latest_imports", "new_imports"]

RUN_COUNT = 10
"""How many runs are looked at: those that were killed have noted nothing."""

MODULE_COUNT = 500
"""The most modules that are taken from one."""

_READ_BYTES = 100 * MODULE_COUNT


def latest_imports(root: Path) -> list[str]:
    """Return the modules that the latest run recorded below `root` has noted, in their order."""
    for _, folder in reversed(numbered(root)[-RUN_COUNT:]):
        with suppress(OSError):
            return [name for name, _ in _noted(folder)]
    return []


def new_imports(folder: Path) -> list[str]:
    """Return the modules that a run's process, which was forked, has imported itself.

    Parameters
    ----------
    folder : Path
        The run's folder.
    """
    with suppress(OSError):
        return [name for name, new in _noted(folder) if new]
    return []


def _noted(folder: Path) -> list[tuple[str, bool]]:
    """Return the names in a file that any program may have written, and whether they are new."""
    with RunPaths(folder).imports.open("rb") as file:
        lines = file.read(_READ_BYTES).decode("utf-8", "replace").splitlines()
    noted = [(line.removeprefix(NEW_IMPORT), line.startswith(NEW_IMPORT)) for line in lines]
    return [one for one in noted if is_module_name(one[0])][:MODULE_COUNT]
