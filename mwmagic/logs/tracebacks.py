"""What ended a worker: the uncaught exception, the user's line, and what it came from.

A worker's report says it, or else its log does. There it understands what the interpreter
prints (chains as in PEP 3134, groups as in PEP 654, ``SyntaxError``, fatal errors), what Keras
and TensorFlow turn it into, and all of this with notices of native code in between.

Messages may hold further tracebacks: AutoGraph puts the frames of a traced function there ("in user
code:"), a graph the frames that defined the operation ("Detected at node"), and code that runs in
another thread or process a whole traceback.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, replace
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any

from mwmagic.model.ownership import is_ours, is_users

from .noise import NATIVE, Noise
from .terminal import plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

__all__ = [
    "FRAME",
    "HEAD",
    "Failure",
    "Frame",
    "Ours",
    "find",
    "frames",
    "innermost",
    "origins",
    "raised_at",
    "readable",
    "reported",
]

_FOREIGN_LINES = 20
"""The most other lines between two frames."""

HEAD = "Traceback (most recent call last):"
"""The line before the first frame."""

FRAME = re.compile(r"\s+File \"(.+?)\", line (\d{1,9})(?:, in (.+?))?(?:  \*+)?$")
"""A frame's file, line and function, without AutoGraph's asterisks."""

_RAISED = re.compile(
    r"((?:\w+\.)*(?:[A-Z]\w*|\w*error|timeout)): (.*)"
    r"|((?:\w+\.)*\w*(?:Error|Exception|Group|Interrupt|Exit|Iteration|Timeout|Empty|Full)):?$"
)
"""The line after the last frame: a type and the first line of its message, or a type alone."""


@dataclass(frozen=True)
class Frame:
    """One level of a traceback: the file as printed, and the line number from 1."""

    file: str
    line: int
    function: str
    """Empty for the place of a ``SyntaxError``."""
    source: str = ""
    """The line of code, without its indent; empty if none was printed."""


def frames(
    lines: Sequence[str], index: int, *, foreign_lines: int = _FOREIGN_LINES
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
            if _RAISED.match(line) or HEAD in line or foreign > foreign_lines:
                return tuple(found), end
    return tuple(found), len(lines)


def innermost(found: Iterable[Frame], script: str) -> Frame | None:
    """Return the innermost frame in the user's own code, given the outermost first.

    The frame of an operation's definition has no source, and says nothing new if the function that
    runs it also defined it.
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
class _ErrorText:
    """A message without the tracebacks in it, and their frames, outermost first."""

    type: str
    """The type of the exception that it is about."""
    text: str
    frames: tuple[Frame, ...] = ()


def readable(text: str) -> str:
    """Return the lines of a message that say something, without a framework's marks."""
    lines = [_MARKS.sub(r"\1", line).rstrip() for line in plain(text).splitlines()]
    return "\n".join(_notable(lines) or filter(None, lines)).strip()


def _notable(lines: list[str]) -> list[str]:
    return [line for line in lines if not _MUTE.match(line)]


def _unfold(kind: str, text: str) -> _ErrorText:
    """Take a message apart."""
    text = _DUMP.sub("(PerReplica:{...}", _unquoted(kind, text)).strip()
    if _TRACED in text:
        return _traced(kind, text)
    if HEAD in text:
        return _carried(kind, text)
    return _ErrorText(kind, text, _defined(text) if _DEFINED in text else ())


def _unquoted(kind: str, text: str) -> str:
    """Return the lines that Keras put into a ``KeyError``, which prints them quoted."""
    if kind != "KeyError" or text[:1] not in {"'", '"'} or "\\n" not in text:
        return text
    try:
        key = ast.literal_eval(text)
    except (SyntaxError, ValueError, MemoryError, RecursionError):  # not what repr() writes
        return text
    return plain(key) if isinstance(key, str) else text


def _traced(kind: str, text: str) -> _ErrorText:
    """Take apart what AutoGraph says: the frames, indented, and the exception itself."""
    lines = text.partition(_TRACED)[2].split("\n")
    lines = [line if FRAME.match(line) else line.removeprefix("    ") for line in lines]
    found, end = frames(lines, 0)
    raised = _RAISED.match(lines[end]) if end < len(lines) else None
    if raised is None:
        return _ErrorText(kind, text, found)
    first = lines[end][raised.start(2) :] if raised[2] else ""
    inner = _unfold(raised[1] or raised[3], "\n".join([first, *lines[end + 1 :]]))
    return replace(inner, frames=found + inner.frames)


def _carried(kind: str, text: str) -> _ErrorText:
    """Take apart a message that ends with the traceback of another thread or process."""
    lines = text.rpartition(HEAD)[2].split("\n")
    found, end = frames(lines, 0)
    before = text.partition(HEAD)[0]
    raised = _RAISED.match(lines[end]) if end < len(lines) else None
    if raised is None or _notable(before.splitlines()):
        return _ErrorText(kind, before, found)
    return _ErrorText(raised[1] or raised[3], raised[2] or "", found)


def _defined(text: str) -> tuple[Frame, ...]:
    """Return the frames that defined an operation; they have no source."""
    found = filter(None, map(FRAME.match, text.split("\n")))
    return tuple(Frame(frame[1], int(frame[2]), frame[3] or "") for frame in found)


_MESSAGE_LINES = 200  # the longest message

_GLUED = re.compile(
    rf"(?<=.)(?={re.escape(HEAD)}|[IWEF]\d{{4}} \d\d:\d\d:[\d.]+ +\d+ [\w./-]+:\d+\] "
    r"|\d{4}-\d\d-\d\d \d\d:\d\d:[\d.]+: [IWEF] [\w./-]+:\d+\] )"
)
_DIRECT = "The above exception was the direct cause of the following exception:"
_HANDLED = "During handling of the above exception, another exception occurred:"
_LINKS = (_DIRECT, _HANDLED)
_ASIDE = re.compile(r"Exception ignored (?:in|while|on)\b|Error in (?:atexit|sys\.)")
_RULES = re.compile(r"\A *(?:\+-\+-+ [\d.]+ -+|\+-{10,}|\+ (?=Exception Group)|\| ?)")
_WARNED = re.compile(r"(?:WARNING|INFO|ERROR):\w|\S+\.py:\d+: \w*Warning")
_FATAL = re.compile(r"Fatal Python error: (.*)")
_STACK = re.compile(r"  File \"(.+)\", line (\d{1,9}) in (.+)$")


@dataclass(frozen=True)
class Failure:
    """An uncaught exception, or one that it came from."""

    type: str
    """With its module, as printed; empty if the log ends before it."""
    message: str
    """All lines of the message, without the tracebacks and dumps of data in it."""
    frames: tuple[Frame, ...]
    """Outermost first."""
    own: Frame | None = None
    """The innermost frame in the user's own code."""
    handled: bool = False
    """Whether the next exception was raised while this one was handled, not ``from`` it."""
    origins: tuple[Failure, ...] = ()
    """What it came from, the nearest first."""

    @property
    def title(self) -> str:
        """The type and the message, without lines that say nothing."""
        return f"{self.type}: {readable(self.message)}".strip(": ")


def find(text: str, script: str) -> Failure | None:
    """Return the last failure in a log."""
    chains = [_owned(chain, script) for chain in _chains(text)]
    users = [last for last in chains if last.own is not None]
    return next(iter([*users[::-1], *chains[::-1]]), None)


def _owned(chain: list[Failure], script: str) -> Failure:
    """Return the last exception of a chain, with the others as its origins."""
    owned = [replace(one, own=innermost(one.frames, script)) for one in chain]
    last, *before = owned[::-1]
    own = next((one.own for one in owned[::-1] if one.own), None)
    return replace(last, own=own, origins=tuple(before))


def reported(report: Mapping[str, Any], script: str) -> Failure:
    """Return the failure that a worker reported; any code there may have written the report."""
    known = tuple(_reported(one, script) for one in origins(report))
    return replace(_reported(report, script), origins=known)


def origins(report: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the reports of the exceptions from which a reported one came."""
    listed = report.get("origins")
    return [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []


def _reported(report: Mapping[str, Any], script: str) -> Failure:
    """Return one exception of a report."""
    message = _unfold(str(report.get("type", "")), str(report.get("message", "")))
    outer = raised_at(report)
    own = innermost([*([outer] if outer else []), *message.frames], script) or outer
    handled = report.get("handled") is True
    return Failure(message.type, message.text, message.frames, own, handled=handled)


def raised_at(report: Mapping[str, Any]) -> Frame | None:
    """Return the line of the user's code that a report names."""
    where = report.get("where")
    if not isinstance(where, dict):
        return None
    line = where.get("line")
    file, function, source = (str(where.get(name, "")) for name in ("file", "function", "source"))
    return Frame(file, line if isinstance(line, int) else 0, function, source)


def _chains(text: str) -> list[list[Failure]]:
    """Return all failures in `text`, grouped into chains of exceptions."""
    lines = list(_clean(plain(text)))
    chains: list[list[Failure]] = []
    before, index = "", 0
    while index < len(lines):
        failure, after = _failure(lines, index)
        if failure and not _ASIDE.match(before):
            if before in _LINKS and chains:
                chains[-1][-1] = replace(chains[-1][-1], handled=before == _HANDLED)
                chains[-1].append(failure)
            else:
                chains.append([failure])
        before = next(filter(str.strip, reversed(lines[index:after])), before)
        index = after
    return chains


def _clean(text: str) -> Iterator[str]:
    """Yield the lines of `text` without the rules of groups, and with glued lines split."""
    for line in text.split("\n"):
        line = _RULES.sub("", line)  # noqa: PLW2901 - the same line, without its rules
        yield from _GLUED.split(line) if HEAD in line or "] " in line else (line,)


def _failure(lines: list[str], index: int) -> tuple[Failure | None, int]:
    """Return the failure that starts at `index`, if there is one, and where it ends."""
    line = lines[index]
    if fatal := _FATAL.match(line):
        return _fatal(fatal[1], lines, index + 1)
    headed = line.endswith(HEAD)
    if not headed and not FRAME.match(line):
        return None, index + 1
    found, end = frames(lines, index + headed, foreign_lines=_FOREIGN_LINES if headed else 0)
    raised = _RAISED.match(lines[end]) if end < len(lines) else None
    if raised is None:
        return (Failure("", "", found) if headed and found else None), max(end, index + 1)
    text = _message(lines[end : end + _MESSAGE_LINES], raised.start(2))
    message = _unfold(raised[1] or raised[3], "\n".join(text))
    return Failure(message.type, message.text, found + message.frames), end + 1


def _message(lines: list[str], start: int) -> list[str]:
    """Return the lines of a message; the first given line also names the type."""
    noise = Noise()
    body = [lines[0], *takewhile(_goes_on, lines[1:])]
    shown = [line for line in body if not noise.hides(line)]
    return [lines[0][start:] if start > 0 else "", *shown[1:]]


def _goes_on(line: str) -> bool:
    ends = line.endswith(HEAD) or line in _LINKS or _ASIDE.match(line)
    return not (ends or NATIVE.match(line) or _WARNED.match(line))


def _fatal(what: str, lines: list[str], index: int) -> tuple[Failure, int]:
    """Read the output of ``faulthandler`` for a crash, which has the innermost frame first."""
    rest = islice(lines, index, index + _MESSAGE_LINES)
    for line in rest:
        index += 1
        if line.startswith("Current thread "):
            break
    found = [Frame(at[1], int(at[2]), at[3]) for at in map(_STACK.match, rest) if at]
    return Failure("Fatal Python error", what, tuple(reversed(found))), index
