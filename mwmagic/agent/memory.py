"""Memory of a process that imports much, and then is forked.

It is packed into huge pages: a fork, and a fork's end, take half as long then.

For each page a fork copies an entry of the page tables, and its end gives one back. A huge page has
one entry in place of 512, until a fork writes to it. Where the kernel has no MADV_COLLAPSE (before
Linux 6.1), or no huge pages, nothing changes.

At the end the process gives back what it has of files, which no fork would get from it.
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
MADV_COLLAPSE = 25
HUGE_PAGE_BYTES = 2 << 20

PACKED_BYTES = 16 << 20
"""How much is packed at once, which takes some 30 ms."""

OBJECT_BYTES = 512
"""The largest object that Python's allocator takes from an arena."""

ARENA_BYTES = 1 << 20
"""What Python's allocator asks the kernel for at once."""

JOINED_BYTES = 180 << 20
"""How much memory Python's objects take after the import of TensorFlow."""

LIBC.madvise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int


class Packing:
    """Packs this process's memory, piece by piece.

    Attributes
    ----------
    over : bool
        Whether nothing is left to pack.
    """

    def __init__(self) -> None:
        self.over = False
        self._pieces: list[tuple[int, int]] | None = None

    def go_on(self) -> None:
        """Pack the next piece."""
        if self._pieces is None:
            self._pieces = pieces(Path("/proc/self/maps").read_bytes())
        if self._pieces:
            start, end = self._pieces.pop()
            for at in range(start, end, HUGE_PAGE_BYTES):  # in one call, the first gap would end it
                LIBC.madvise(at, HUGE_PAGE_BYTES, MADV_COLLAPSE)
        self.over = not self._pieces
        if self.over:
            release()


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
def joined(size: int = JOINED_BYTES) -> Iterator[None]:
    """Place the objects that are made meanwhile side by side, where huge pages can hold them.

    Otherwise Python's arenas lie between the files that an import maps. So they are allocated in
    advance, and one object in each keeps it: with two in some of them, Python would fill those
    first. Those that stay unused are freed at the end.
    """
    # Of its full length at once: a list that grows would lie between the arenas.
    objects: list[bytes | None] = [None] * (size // OBJECT_BYTES)
    kept: dict[int, bytes] = {}
    for at in range(len(objects)):
        one = objects[at] = bytes(OBJECT_BYTES - b"".__sizeof__())
        kept.setdefault(id(one) // ARENA_BYTES, one)
    del objects
    try:
        yield
    finally:
        del kept


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


def pieces(maps: bytes) -> list[tuple[int, int]]:
    """Return the parts of a process's memory that huge pages can hold, as ``/proc`` lists it.

    These are what is writable and belongs to no file, in whole huge pages.
    """
    found: list[tuple[int, int]] = []
    for line in maps.splitlines():
        bounds, rights, _, _, _, *path = line.split()
        if rights == b"rw-p" and path in ([], [b"[heap]"]):
            first, last = ends(bounds)
            start = -(-first // HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES
            end = last // HUGE_PAGE_BYTES * HUGE_PAGE_BYTES
            found += [(at, min(at + PACKED_BYTES, end)) for at in range(start, end, PACKED_BYTES)]
    return found


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
            found.append(ends(bounds))
    return found


def ends(bounds: bytes) -> tuple[int, int]:
    """Return where an area begins and ends, from the words for it in ``/proc``."""
    start, _, end = bounds.partition(b"-")
    return int(start, 16), int(end, 16)
