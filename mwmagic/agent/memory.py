"""Packs a process's memory into huge pages: a fork, and a fork's end, take half as long then.

For each page a fork copies an entry of the page tables, and its end gives one back. A huge page has
one entry in place of 512, until a fork writes to it. Where the kernel has no MADV_COLLAPSE (before
Linux 6.1), or no huge pages, nothing changes.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

from .system import LIBC

MADV_COLLAPSE = 25
HUGE_PAGE_BYTES = 2 << 20

PACKED_BYTES = 16 << 20
"""How much is packed at once, which takes some 30 ms."""

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
            LIBC.madvise(start, end - start, MADV_COLLAPSE)
        self.over = not self._pieces


def pieces(maps: bytes) -> list[tuple[int, int]]:
    """Return the parts of a process's memory that huge pages can hold, as ``/proc`` lists it.

    These are what is writable and belongs to no file, in whole huge pages.
    """
    found: list[tuple[int, int]] = []
    for line in maps.splitlines():
        bounds, rights, _, _, _, *path = line.split()
        if rights == b"rw-p" and path in ([], [b"[heap]"]):
            first, last = (int(one, 16) for one in bounds.split(b"-"))
            start = -(-first // HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES
            end = last // HUGE_PAGE_BYTES * HUGE_PAGE_BYTES
            found += [(at, min(at + PACKED_BYTES, end)) for at in range(start, end, PACKED_BYTES)]
    return found
