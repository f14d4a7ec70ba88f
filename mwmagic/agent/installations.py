"""What is installed, as it was before a process imported it."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

INSTALLED = "-packages"
"""The end of the names of the folders that packages are installed in."""

DISTRIBUTIONS = (".dist-info", ".egg-info", ".egg-link", ".pth")
"""The ends of the names of what installers write there for each distribution."""

Listing = frozenset[tuple[str, int]]


class Installations:
    """The distributions in the folders where this process finds packages.

    Once one of them is upgraded, removed or new, a plain process would import something else, even
    from packages that are the same: what is optional to them.
    """

    def __init__(self) -> None:
        folders = [path for path in sys.path if path.rstrip(os.sep).endswith(INSTALLED)]
        self._known = {folder: (touched(folder), distributions(folder)) for folder in folders}

    @property
    def changed(self) -> bool:
        """Whether there are other distributions by now."""
        # Whatever is installed touches the folder; but so does Python, when it compiles a module.
        return any(
            touched(folder) != then and distributions(folder) != before
            for folder, (then, before) in self._known.items()
        )


def touched(folder: str) -> int | None:
    """Return when a folder's entries last changed, in nanoseconds; None if it is not there."""
    try:
        return os.stat(folder).st_mtime_ns  # noqa: PTH116 - a string, for each worker
    except OSError:
        return None


def distributions(folder: str) -> Listing:
    """Return the distributions in a folder, each with the time when it was installed."""
    found = set()
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(DISTRIBUTIONS):
                found.add((entry.name, entry.stat().st_mtime_ns))
    return frozenset(found)
