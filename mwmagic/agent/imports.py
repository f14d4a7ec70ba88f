"""What a zygote imports, and whether it can be forked after that."""

from __future__ import annotations

import ctypes
import importlib
import os
import signal
import sys
from pathlib import Path

from .system import LIBC

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextlib import AbstractContextManager

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
