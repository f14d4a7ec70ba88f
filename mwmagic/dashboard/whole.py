"""Whole logs for download: one, or all logs of a run concatenated."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["DOWNLOAD_BYTES", "PIECE_BYTES", "Whole"]

DOWNLOAD_BYTES = 200 * 2**20
"""Maximum that a page downloads."""

PIECE_BYTES = 2**19
"""How much is sent to a page at a time."""


class Whole:
    """A snapshot of logs; what is appended later is left out."""

    def __init__(self, paths: Sequence[Path]) -> None:
        several = len(paths) > 1
        self._parts = [
            (f"==> {path.name} <==\n".encode() if several else b"", path, path.stat().st_size)
            for path in paths
            if path.exists()
        ]

    @property
    def size(self) -> int:
        """Total size in bytes."""
        return sum(len(head) + size for head, _, size in self._parts)

    def piece(self, start: int) -> bytes:
        """Return a piece that starts at an offset; it is empty at the end."""
        for head, path, size in self._parts:
            if start < len(head):
                return head[start:]
            start -= len(head)
            if start < size:
                with path.open("rb") as file:
                    file.seek(start)
                    return file.read(min(PIECE_BYTES, size - start))
            start -= size
        return b""
