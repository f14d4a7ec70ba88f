"""Find what ended a worker: the uncaught exception, the user's line, and what it came from.

A worker's report says it, or else its log does. There it understands what the interpreter
prints (chains as in PEP 3134, groups as in PEP 654, ``SyntaxError``, fatal errors), what Keras
and TensorFlow turn it into, and all of this with notices of native code in between.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any

from .frame import FOREIGN_LINES, FRAME, HEAD, RAISED, Frame, frames, innermost
from .message import readable, unfold
from .noise import NATIVE, Noise
from .terminal import plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["Failure", "find", "origins", "raised_at", "reported"]

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
    """An uncaught exception, or one that it came from.

    Parameters
    ----------
    type : str
        The type with its module, as printed; empty if the log ends before it.
    message : str
        All lines of the message, without the tracebacks and dumps of data in it.
    frames : tuple of Frame
        Outermost first.
    own : Frame or None
        The innermost frame in the user's own code.
    handled : bool
        Whether the next exception was raised while this one was handled, rather than
        ``from`` it.
    origins : tuple of Failure
        What it came from, the nearest first.
    """

    type: str
    message: str
    frames: tuple[Frame, ...]
    own: Frame | None = None
    handled: bool = False
    origins: tuple[Failure, ...] = ()

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
    message = unfold(str(report.get("type", "")), str(report.get("message", "")))
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
    found, end = frames(lines, index + headed, foreign_lines=FOREIGN_LINES if headed else 0)
    raised = RAISED.match(lines[end]) if end < len(lines) else None
    if raised is None:
        return (Failure("", "", found) if headed and found else None), max(end, index + 1)
    text = _message(lines[end : end + _MESSAGE_LINES], raised.start(2))
    message = unfold(raised[1] or raised[3], "\n".join(text))
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
