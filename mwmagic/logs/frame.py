"""The frames of tracebacks, as the interpreter prints them."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mwmagic.model.ownership import is_ours, is_users

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["FOREIGN_LINES", "FRAME", "HEAD", "RAISED", "Frame", "Ours", "frames", "innermost"]

FOREIGN_LINES = 20
"""The most other lines between two frames."""

HEAD = "Traceback (most recent call last):"
"""The line before the first frame."""

FRAME = re.compile(r"\s+File \"(.+?)\", line (\d{1,9})(?:, in (.+?))?(?:  \*+)?$")
"""A frame's file, line and function, without AutoGraph's asterisks."""

RAISED = re.compile(
    r"((?:\w+\.)*(?:[A-Z]\w*|\w*error|timeout)): (.*)"
    r"|((?:\w+\.)*\w*(?:Error|Exception|Group|Interrupt|Exit|Iteration|Timeout|Empty|Full)):?$"
)
"""The line after the last frame: a type and the first line of its message, or a type alone."""


@dataclass(frozen=True)
class Frame:
    """One level of a traceback.

    Parameters
    ----------
    file : str
        The file, as printed.
    line : int
        The line number, from 1.
    function : str
        The function; empty for the place of a ``SyntaxError``.
    source : str
        The line of code, without its indent; empty if none was printed.
    """

    file: str
    line: int
    function: str
    source: str = ""


def frames(
    lines: Sequence[str], index: int, *, foreign_lines: int = FOREIGN_LINES
) -> tuple[tuple[Frame, ...], int]:
    """Return the frames of a traceback, and the index of the line that names the exception."""
    found: list[Frame] = []
    foreign = 0
    for end in range(index, len(lines)):
        line = lines[end]
        if frame := FRAME.match(line):
            found.append(Frame(frame[1], int(frame[2]), frame[3] or ""))
        elif line[:1] == " " and found:
            found[-1] = found[-1] if found[-1].source else replace(found[-1], source=line.strip())
        elif line.strip():
            foreign += 1
            if RAISED.match(line) or HEAD in line or foreign > foreign_lines:
                return tuple(found), end
    return tuple(found), len(lines)


def innermost(found: Iterable[Frame], script: str) -> Frame | None:
    """Return the innermost frame in the user's own code, given the outermost first.

    Where an operation was defined, which has no source, says nothing new if the function that
    runs it did that.
    """
    own: Frame | None = None
    for frame in found:
        again = own and own.source and not frame.source and own.function == frame.function
        own = frame if is_users(frame.file, script) and not again else own
    return own


class Ours:
    """Finds the frames of mwmagic's own code among the lines of one log, in order."""

    def __init__(self) -> None:
        self._indent: int | None = None

    def hides(self, line: str) -> bool:
        """Return whether `line`, the next one of the log, belongs to such a frame."""
        if self._indent is None and line[:1] != " ":
            return False
        indent = len(line) - len(line.lstrip(" "))
        if self._indent is not None and indent > self._indent and line.strip():
            return True  # the code, and what marks a part of it
        frame = FRAME.match(line)
        self._indent = indent if frame and is_ours(frame[1]) else None
        return self._indent is not None
