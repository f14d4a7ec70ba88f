"""What the message of an exception says, and the tracebacks that frameworks put into it.

AutoGraph puts the frames of a traced function there ("in user code:"), a graph the frames
that defined the operation ("Detected at node"), and code that runs in another thread or
process a whole traceback.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, replace

from .frame import FRAME, HEAD, RAISED, Frame, frames
from .terminal import plain

__all__ = ["ErrorText", "readable", "unfold"]

_TRACED = "in user code:\n"
_DEFINED = "Detected at node "
_DUMP = re.compile(r"\(PerReplica:\{\n(?:.*?\n)?\}", re.DOTALL)
_MARKS = re.compile(
    r"\{\{function_node [^}]{0,200}\}\} ?|\{\{node ([^}]{0,200})\}\}|: goo\.gle/debug\w+"
    r"| \[Op:\w+\](?: name: ?\S*)?$"
)
_MUTE = re.compile(
    r"(?:in user code|Graph execution error):$|Exception encountered when calling "
    rf"|{_DEFINED}|<stack traces unavailable>$|Additional GRPC error information |"
    r":UNKNOWN:Error received from |The error could be from a previous operation\. |\s*$"
    r"|\s+File \"|\s+\[\[|\"\"\"$"
)


@dataclass(frozen=True)
class ErrorText:
    """A message without the tracebacks in it.

    Parameters
    ----------
    type : str
        The type of the exception that it is about.
    text : str
        The rest of its lines.
    frames : tuple of Frame
        The frames in it, outermost first.
    """

    type: str
    text: str
    frames: tuple[Frame, ...] = ()


def readable(text: str) -> str:
    """Return the lines of a message that say something, without a framework's marks."""
    lines = [_MARKS.sub(r"\1", line).rstrip() for line in plain(text).splitlines()]
    return "\n".join(_telling(lines) or filter(None, lines)).strip()


def _telling(lines: list[str]) -> list[str]:
    return [line for line in lines if not _MUTE.match(line)]


def unfold(kind: str, text: str) -> ErrorText:
    """Take a message apart."""
    text = _DUMP.sub("(PerReplica:{...}", _unquoted(kind, text)).strip()
    if _TRACED in text:
        return _traced(kind, text)
    if HEAD in text:
        return _carried(kind, text)
    return ErrorText(kind, text, _defined(text) if _DEFINED in text else ())


def _unquoted(kind: str, text: str) -> str:
    """Return the lines that Keras put into a ``KeyError``, which prints them quoted."""
    if kind != "KeyError" or text[:1] not in {"'", '"'} or "\\n" not in text:
        return text
    try:
        key = ast.literal_eval(text)
    except (SyntaxError, ValueError, MemoryError, RecursionError):  # not what repr() writes
        return text
    return plain(key) if isinstance(key, str) else text


def _traced(kind: str, text: str) -> ErrorText:
    """Take apart what AutoGraph says: the frames, indented, and the exception itself."""
    lines = text.partition(_TRACED)[2].split("\n")
    lines = [line if FRAME.match(line) else line.removeprefix("    ") for line in lines]
    found, end = frames(lines, 0)
    raised = RAISED.match(lines[end]) if end < len(lines) else None
    if raised is None:
        return ErrorText(kind, text, found)
    first = lines[end][raised.start(2) :] if raised[2] else ""
    inner = unfold(raised[1] or raised[3], "\n".join([first, *lines[end + 1 :]]))
    return replace(inner, frames=found + inner.frames)


def _carried(kind: str, text: str) -> ErrorText:
    """Take apart a message that ends with the traceback of another thread or process."""
    lines = text.rpartition(HEAD)[2].split("\n")
    found, end = frames(lines, 0)
    before = text.partition(HEAD)[0]
    raised = RAISED.match(lines[end]) if end < len(lines) else None
    if raised is None or _telling(before.splitlines()):
        return ErrorText(kind, before, found)
    return ErrorText(raised[1] or raised[3], raised[2] or "", found)


def _defined(text: str) -> tuple[Frame, ...]:
    """Return the frames that defined an operation; they have no source."""
    found = filter(None, map(FRAME.match, text.split("\n")))
    return tuple(Frame(frame[1], int(frame[2]), frame[3] or "") for frame in found)
