"""Logs as they grow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .noise import Noise
from .terminal import Terminal

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Follower"]

CHUNK = 2**20
"""Bytes read at a time at the most."""


class Follower:
    """Reads the finished lines of a log that is being written.

    Parameters
    ----------
    path : Path
        The log; it may not exist yet.
    raw : bool
        Whether to keep the framework's notices.
    """

    def __init__(self, path: Path, *, raw: bool = False) -> None:
        self.path = path
        self._raw = raw
        self._offset = 0
        self._terminal = Terminal()
        self._noise = Noise()

    def read(self, *, last: bool = False) -> list[str]:
        """Return the lines that were finished since the last call.

        Parameters
        ----------
        last : bool
            Nothing more will be written: the rest is a line too.
        """
        lines: list[str] = []
        while data := self._more():
            lines += self._terminal.feed(data)
        if last:
            lines += self._terminal.close()
        return lines if self._raw else [line for line in lines if not self._noise.hides(line)]

    def _more(self) -> bytes:
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                data = file.read(CHUNK)
        except FileNotFoundError:
            return b""
        self._offset += len(data)
        return data
