"""What a warm process has imported with, and whether that is for a program as it was.

A worker is forked only if all that the imports have read is the same for its program: then it has
what importing it itself would give. The supervisor compares the variables, as it knows the
program's; this module notes which ones Python code has asked for, and compares files and names.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import contextmanager, suppress

from ..wire import COLD_FILE, COLD_INSTALLED, COLD_MODULE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

Why = tuple[str, str]

CUSTOMIZED = ("sitecustomize.py", "usercustomize.py")
"""What the interpreter imports as it starts."""

MATPLOTLIBRC = "matplotlibrc"
"""What matplotlib reads as it is imported, in the current folder first."""

NAMED_COUNT = 5
"""The most modules that are named."""


class Reads(dict):  # type: ignore[type-arg]
    """Takes the place of what `os.environ` holds, and notes which variables are asked for."""

    def __init__(self) -> None:
        super().__init__(vars(os.environ)["_data"])
        self.names: set[str] = set()

    def __getitem__(self, key: Any) -> Any:  # noqa: ANN401 - as the interpreter encodes them
        self.names.add(os.fsdecode(key))
        return super().__getitem__(key)


class Basis:
    """What this process has imported with.

    Attributes
    ----------
    reads : dict of str to set of str
        The variables that imports have asked for, each with the packages whose import did; the
        framework is the package without a name.
    sets : dict of str to str
        The variables that imports have set.
    env : dict of str to str
        The environment in which they began.
    """

    def __init__(self, started: Iterable[str]) -> None:
        self.reads: dict[str, set[str]] = {}
        self.sets: dict[str, str] = {}
        self.env = dict(os.environ)
        self._began = time.time_ns()
        self._installations = Installations()
        self._cwd = os.getcwd()  # noqa: PTH109 - a string
        self._early = {name.partition(".")[0] for name in started}
        self._imported: set[str] = set()
        self._files: dict[str, int | None] = {}

    @contextmanager
    def importing(self, package: str = "") -> Iterator[None]:
        """Note which variables are read and set meanwhile, by the import of a package."""
        before, after = vars(os.environ)["_data"], Reads()
        given = dict(os.environ)
        for mapping in (os.environ, os.environb):
            vars(mapping).update(_data=after)
        try:
            yield
        finally:
            for mapping in (os.environ, os.environb):
                vars(mapping).update(_data=before)
            before.clear()
            before.update(after)
        for name in after.names:
            self.reads.setdefault(name, set()).add(package)
        self.sets |= {name: new for name, new in os.environ.items() if given.get(name) != new}

    def note(self) -> None:
        """Note the names and the files of what is there now."""
        self._imported = {name.partition(".")[0] for name in list(sys.modules)} - self._early
        found = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
        paths = [file for file in found if isinstance(file, str) and file.startswith("/")]
        self._files = {path: modified(path) for path in (*paths, *self._settings())}
        for path, moment in self._files.items():
            if moment is not None and moment >= self._began:
                self._files[path] = -1  # it may have been read before

    def _settings(self) -> Iterator[str]:
        """Yield the files that imports read where they are there."""
        home = os.path.expanduser("~")  # noqa: PTH111 - strings
        yield f"{os.environ.get('KERAS_HOME') or f'{home}/.keras'}/keras.json"
        for folder in sys.path:
            yield from (f"{folder or self._cwd}/{name}" for name in CUSTOMIZED)
        if "matplotlib" in sys.modules:
            config = os.environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
            given = [os.environ.get(name) or "" for name in ("MATPLOTLIBRC", "MPLCONFIGDIR")]
            folders = (*filter(None, given), f"{config}/matplotlib", f"{home}/.matplotlib")
            yield from (f"{folder}/{MATPLOTLIBRC}" for folder in (self._cwd, *folders))
            yield given[0] or f"{self._cwd}/{MATPLOTLIBRC}"

    def changed(self) -> Why | None:
        """Return what is not as it was, for whatever program."""
        if self._installations.changed:
            return COLD_INSTALLED, ""
        for path, moment in self._files.items():
            if modified(path) != moment:
                return COLD_FILE, path
        return None

    def differs(self, cwd: str, script: str) -> Why | None:
        """Return what is not as it was for a program that runs in a folder."""
        own = f"{cwd}/{MATPLOTLIBRC}"
        elsewhere = os.path.realpath(cwd) != os.path.realpath(self._cwd)
        if elsewhere and "matplotlib" in sys.modules:
            there = f"{self._cwd}/{MATPLOTLIBRC}"
            if modified(own) is not None or self._files.get(there) is not None:
                return COLD_FILE, own
        folder = os.path.dirname(os.path.realpath(os.path.join(cwd, script)))  # noqa: PTH118, PTH120
        beside = sorted(modules_in(folder) & self._imported)
        return (COLD_MODULE, ", ".join(beside[:NAMED_COUNT])) if beside else None


def modified(path: str) -> int | None:
    """Return when a file was last changed, in nanoseconds; None if it is not there."""
    try:
        return os.stat(path).st_mtime_ns  # noqa: PTH116 - thousands of them
    except OSError:
        return None


def modules_in(folder: str) -> set[str]:
    """Return the names of the modules and packages in a folder."""
    found = set()
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                stem, _, end = entry.name.partition(".")
                module = end == "py" or end.endswith(("so", "pyc"))
                if module or (not end and modified(f"{entry.path}/__init__.py") is not None):
                    found.add(stem)
    except OSError:
        pass
    return found


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
        self._known = {folder: (modified(folder), distributions(folder)) for folder in folders}

    @property
    def changed(self) -> bool:
        """Whether there are other distributions by now."""
        # Whatever is installed touches the folder; but so does Python, when it compiles a module.
        return any(
            modified(folder) != then and distributions(folder) != before
            for folder, (then, before) in self._known.items()
        )


def distributions(folder: str) -> Listing:
    """Return the distributions in a folder, each with the time when it was installed."""
    found = set()
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(DISTRIBUTIONS):
                found.add((entry.name, entry.stat().st_mtime_ns))
    return frozenset(found)
