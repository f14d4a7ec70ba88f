"""Which editions of installed packages a process has imported."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

INSTALLED = "-packages" + os.sep
"""The end of the names of the folders that packages are installed in."""

Edition = tuple[int, ...]


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
            self._folders.setdefault(folder, installation(folder))

    @property
    def stale(self) -> bool:
        """Whether one of the packages is another one by now."""
        # Whatever is installed changes its folder, and there are few of them.
        installed = any(installation(path) != then for path, then in self._folders.items())
        return installed and any(edition(path) != then for path, then in self._files.items())


def imported() -> Iterator[str]:
    """Yield the file of each installed package that is imported."""
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__dict__", {}).get("__file__") if "." not in name else None
        if isinstance(file, str) and INSTALLED in file:
            yield file


def installation(folder: str) -> Edition | None:
    """Return what changes when something is installed in a folder, or None if that is gone.

    The inode is not part of it: on some file systems a folder has another one tomorrow.
    """
    found = status(folder)
    return None if found is None else (found.st_mtime_ns,)


def edition(file: str) -> Edition | None:
    """Return what changes when a file is replaced, or None if it is gone."""
    found = status(file)
    return None if found is None else (found.st_ino, found.st_size, found.st_mtime_ns)


def status(path: str) -> os.stat_result | None:
    """Return what is known of a file, or None if it is gone."""
    try:
        return os.stat(path)  # noqa: PTH116 - a string, for each worker
    except OSError:
        return None
