"""Memory and time of a process that imports much, and then is forked.

It gives back its pages of files, which are over half of its memory after an import of TensorFlow,
and looks for no garbage meanwhile, which would take half a second of that import.
"""

from __future__ import annotations

import ctypes
import gc
from contextlib import contextmanager
from pathlib import Path

from .system import LIBC

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

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
