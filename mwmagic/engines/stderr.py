"""What a command last wrote to its standard error, such as why ssh could not connect."""

from __future__ import annotations

__all__ = ["Stderr"]

STDERR_BYTES = 8192
STDERR_LINES = 5
STDERR_LINE_CHARACTERS = 300


class Stderr:
    """The end of a text that may be anything."""

    def __init__(self) -> None:
        self._data = b""

    def take(self, data: bytes) -> None:
        """Add to the text; only its end is kept."""
        self._data = (self._data + data)[-STDERR_BYTES:]

    def forget(self) -> None:
        """Begin again."""
        self._data = b""

    @property
    def last(self) -> str:
        """The last lines on one, without what would control a terminal."""
        lines = map(_plain, self._data.decode(errors="replace").splitlines())
        return "; ".join([line for line in lines if line][-STDERR_LINES:])


def _plain(line: str) -> str:
    text = "".join(one if one.isprintable() else " " for one in line)
    return text.strip().removesuffix(".")[:STDERR_LINE_CHARACTERS]
