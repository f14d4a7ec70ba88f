"""What a zygote imports, and whether a fork of it is as if the program had imported that itself.

While it imports it looks for no garbage, which would take half a second of an import of TensorFlow,
and after that it gives back its pages of files, which are over half of its memory.

A worker is forked only if all that the imports have read is the same for its program (`Basis`). The
supervisor compares the variables, as it knows the program's; here is noted which ones Python code
has asked for, and files and names are compared.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import signal
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

from ..system import LIBC
from ..wire import COLD_FILE, COLD_INSTALLED, COLD_MODULE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager
    from typing import Any

OPENMP = "KMP_"
"""Variables of Intel's OpenMP, which scikit-learn sets as it is imported, for its own libraries."""


FORK = ctypes.PyDLL(None).fork
"""C's own, called with the interpreter's lock held, which no other thread can have then."""


class Unfit(Exception):
    """A module does more than a worker that imports it would notice."""

    def __init__(self, module: str, why: str) -> None:
        super().__init__(f"{module}: {why}")
        self.module = module


def import_all(names: Iterable[str]) -> list[str]:
    """Import modules, and return the errors."""
    missing = []
    for name in names:
        try:
            importlib.import_module(name)
        except Exception as error:  # noqa: BLE001, PERF203 - an import may raise anything
            missing.append(f"{name}: {type(error).__name__}: {error}"[:500])
    return missing


def import_ahead(
    names: Iterable[str], importing: Callable[[str], AbstractContextManager[None]]
) -> list[str]:
    """Import modules that workers may need, but none whose effects a worker would not have.

    The second argument watches the import of a package. Returns the errors.
    """
    before, missing = effects(), []
    for name in names:
        with importing(name.partition(".")[0]):
            try:
                missing += import_all([name])
            except SystemExit as error:
                missing.append(f"{name}: SystemExit: {error}"[:500])
        after = effects()
        for what, known in before.items():
            if after[what] != known:
                raise Unfit(name, f"its import {what}")
        before = after
    return missing


def effects() -> dict[str, object]:
    """Return what imports may change besides modules, and what it means if one does."""
    flush()
    end_threads()
    return {
        "prints, which is for a worker's log": os.fstat(1).st_size,
        "starts threads, which a fork would lose": count("task"),
        "opens files, which forks would share": count("fd"),
        "sets variables, which a worker would not have": variables(),
        "handles signals, which is for a program": [*map(signal.getsignal, signal.valid_signals())],
        "sets up logging, which is for a program": logging_set(),
        "defines flags, which a program might define": flags(),
    }


def end_threads() -> None:
    """End the threads of libraries that end them before a fork and start them when needed again.

    OpenBLAS does, with as many as it chose as it was loaded. It does before any fork, and this one
    is C's own, without what Python and its modules do at a fork.
    """
    child = FORK()
    if not child:
        LIBC._exit(0)  # noqa: SLF001 - a function of C's
    if child > 0:
        os.waitpid(child, 0)


def count(what: str) -> int:
    """Return how many threads (``task``) or open files (``fd``) this process has."""
    return len(os.listdir(f"/proc/self/{what}"))  # noqa: PTH208 - no paths are needed


def logging_set() -> object:
    """Return how the root logger is set up."""
    root = getattr(sys.modules.get("logging"), "root", None)
    return None if root is None else (root.level, list(root.handlers))


def flags() -> set[str]:
    """Return the names of absl's flags: to define one twice is an error."""
    return set(getattr(sys.modules.get("absl.flags"), "FLAGS", ()))


def variables() -> dict[str, str]:
    """Return the environment, but for what only matters to the module that sets it."""
    return {name: value for name, value in os.environ.items() if not name.startswith(OPENMP)}


def flush() -> None:
    """Write out what has been printed, by Python and by libraries."""
    sys.stdout.flush()
    sys.stderr.flush()
    LIBC.fflush(None)


def check_forkable() -> None:
    """Raise RuntimeError if a fork of this process would be another than this."""
    end_threads()
    threads = count("task")
    if threads > 1:
        raise RuntimeError(f"the imports started {threads - 1} threads, which a fork would lose")
    if holds_gpu():
        raise RuntimeError("the imports opened a GPU, which a fork cannot use")


def holds_gpu() -> bool:
    """Return whether this process has a file of the NVIDIA driver open."""
    files = [one for one in Path("/proc/self/fd").iterdir() if one.exists()]
    return any(str(file.readlink()).startswith("/dev/nvidia") for file in files)


MADV_DONTNEED = 4
LIBC.madvise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int


def release() -> None:
    """Give back what this process only reads of files: after an import, over half of its memory.

    The system's cache keeps it, and the process finds there what it needs again. Forks do so in any
    case, since the kernel copies no such page for them.
    """
    try:
        smaps = Path("/proc/self/smaps").read_bytes()
    except OSError:
        return  # some containers have none
    for start, end in unwritten(smaps):
        LIBC.madvise(start, end - start, MADV_DONTNEED)


@contextmanager
def uncollected() -> Iterator[None]:
    """Look for no garbage meanwhile: an import makes little, and looking takes a third of its time.

    A threshold that imported code sets itself stays.
    """
    usual = gc.get_threshold()
    gc.set_threshold(0)
    try:
        yield
    finally:
        if gc.get_threshold()[0] == 0:
            gc.set_threshold(*usual)


def unwritten(smaps: bytes) -> list[tuple[int, int]]:
    """Return where a process has files as they are, and may not write, as ``/proc`` lists it.

    Pages that the loader wrote, before it took that right away, are the process's own.
    """
    found: list[tuple[int, int]] = []
    bounds, read_only, own_kilobytes = b"", False, 0
    for line in smaps.splitlines():
        first, *rest = line.split()
        if not first.endswith(b":"):
            bounds, own_kilobytes = first, 0
            read_only = rest[0] in (b"r--p", b"r-xp") and b"/" in line
        elif first in (b"Anonymous:", b"Swap:"):
            own_kilobytes += int(rest[0])
        elif first == b"VmFlags:" and read_only and not own_kilobytes:  # the last one
            start, _, end = bounds.partition(b"-")
            found.append((int(start, 16), int(end, 16)))
    return found


Why = tuple[str, str]

CUSTOMIZED = ("sitecustomize.py", "usercustomize.py")
"""What the interpreter imports as it starts."""

MATPLOTLIBRC = "matplotlibrc"
"""What matplotlib reads as it is imported, in the current folder first."""

KERAS_DEFAULTS = {
    "floatx": "float32",
    "epsilon": 1e-07,
    "backend": "tensorflow",
    "image_data_format": "channels_last",
}
"""What Keras writes into its settings as it is imported, if there are none."""

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

    Imports began in the environment `env`; they have asked for the variables `reads`, each with the
    packages whose import did (the framework is the package without a name), and set `sets`.
    """

    def __init__(self, started: Iterable[str]) -> None:
        self.reads: dict[str, set[str]] = {}
        self.sets: dict[str, str] = {}
        self.env = dict(os.environ)
        self._began = time.time_ns()
        self._installations = Installations()
        self._cwd = os.getcwd()  # noqa: PTH109 - a string
        self._had_none = modified(keras_settings()) is None
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
            if moment is not None and moment >= self._began and not self._is_kerass_own(path):
                self._files[path] = -1  # it may have been read before

    def _is_kerass_own(self, path: str) -> bool:
        """Return whether a file has what Keras takes if there is none, as there was at first."""
        if not self._had_none or path != keras_settings():
            return False
        try:
            return bool(json.loads(Path(path).read_bytes()) == KERAS_DEFAULTS)
        except (OSError, ValueError):
            return False

    def _settings(self) -> Iterator[str]:
        """Yield the files that imports read where they are there."""
        home = os.path.expanduser("~")  # noqa: PTH111 - strings
        yield keras_settings()
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


def keras_settings() -> str:
    """Return the path of Keras's settings."""
    home = os.environ.get("KERAS_HOME") or os.path.expanduser("~/.keras")  # noqa: PTH111 - a string
    return f"{home}/keras.json"


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
