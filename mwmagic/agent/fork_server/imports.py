"""What a zygote imports, and whether it can be forked after that.

Meanwhile it looks for no garbage, which would take half a second of an import of TensorFlow, and
after that it gives back its pages of files, which are over half of its memory.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import os
import signal
import sys
from contextlib import contextmanager
from pathlib import Path

from ..system import LIBC

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
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

    What the loader wrote, before it took that right away, is the process's own.
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
