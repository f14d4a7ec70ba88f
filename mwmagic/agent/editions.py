"""Which editions of installed packages a process has imported."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

INSTALLED = "-packages" + os.sep
"""The end of the names of the folders that packages are installed in."""

Edition = tuple[int, int, int]


class Editions:
    """The files of packages as they were when a zygote had imported them.

    A worker whose packages have been upgraded, or removed, since then must not be forked.
    """

    def __init__(self) -> None:
        self._folders: dict[str, Edition | None] = {}
        self._files: dict[str, Edition | None] = {}

    def note(self) -> None:
        """Note the packages that this process has imported since it last did so."""
        for file in {*imported()} - {*self._files}:
            self._files[file] = edition(file)
            folder = file[: file.index(INSTALLED) + len(INSTALLED)]
            self._folders.setdefault(folder, edition(folder))

    @property
    def stale(self) -> bool:
        """Whether one of the packages is another one by now."""
        # A folder changes whenever something is installed in it, and there are few.
        return changed(self._folders) and changed(self._files)


def changed(known: dict[str, Edition | None]) -> bool:
    """Return whether one of the files is another one by now."""
    return any(edition(path) != then for path, then in known.items())


def imported() -> Iterator[str]:
    """Yield the file of each installed package that is imported."""
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__dict__", {}).get("__file__") if "." not in name else None
        if isinstance(file, str) and INSTALLED in file:
            yield file


def edition(file: str) -> Edition | None:
    """Return what changes when a file is replaced, or None if it is gone."""
    try:
        found = os.stat(file)  # noqa: PTH116 - a string, for each worker
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
