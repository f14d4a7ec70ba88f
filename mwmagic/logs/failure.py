"""Find the Python failure in a worker's log: the first cause, at the user's own line.

It understands what the interpreter prints (chains as in PEP 3134, groups as in PEP 654,
``SyntaxError``, fatal errors), what Keras and TensorFlow turn it into ("in user code:",
"Graph execution error:", tracebacks inside messages), and all of this with notices of
native code in between.
"""

from __future__ import annotations

import ast
import posixpath
import re
from dataclasses import dataclass, replace
from itertools import islice, takewhile
from typing import TYPE_CHECKING

from .noise import NATIVE, Noise
from .terminal import plain

if TYPE_CHECKING:
    from collections.abc import Iterator

_MESSAGE_LINES = 200  # the longest message
_FOREIGN_LINES = 20  # the most other lines between two frames

_HEAD = "Traceback (most recent call last):"
_GLUED = re.compile(
    rf"(?<=.)(?={re.escape(_HEAD)}|[IWEF]\d{{4}} \d\d:\d\d:[\d.]+ +\d+ [\w./-]+:\d+\] "
    r"|\d{4}-\d\d-\d\d \d\d:\d\d:[\d.]+: [IWEF] [\w./-]+:\d+\] )"
)
_FRAME = re.compile(r"\s+File \"(.+?)\", line (\d{1,9})(?:, in (.+?))?(?:  \*+)?$")
_RAISED = re.compile(
    r"((?:\w+\.)*(?:[A-Z]\w*|\w*error|timeout)): (.*)"
    r"|((?:\w+\.)*\w*(?:Error|Exception|Group|Interrupt|Exit|Iteration|Timeout|Empty|Full)):?$"
)
_LINK = re.compile(
    r"(?:The above exception was the direct cause of the following exception"
    r"|During handling of the above exception, another exception occurred):$"
)
_ASIDE = re.compile(r"Exception ignored (?:in|while|on)\b|Error in (?:atexit|sys\.)")
_RULES = re.compile(r"\A *(?:\+-\+-+ [\d.]+ -+|\+-{10,}|\+ (?=Exception Group)|\| ?)")
_WARNED = re.compile(r"(?:WARNING|INFO|ERROR):\w|\S+\.py:\d+: \w*Warning")
_MARKS = re.compile(
    r"\{\{function_node [^}]{0,200}\}\} ?|\{\{node ([^}]{0,200})\}\}|: goo\.gle/debug\w+"
)
_NODES = re.compile(r"\s+\[\[")
_FATAL = re.compile(r"Fatal Python error: (.*)")
_STACK = re.compile(r"  File \"(.+)\", line (\d{1,9}) in (.+)$")
_INSTALLED = re.compile(r"/(?:site|dist)-packages/|/lib/python3|/__autograph_generated_file")
_MUTE = re.compile(
    r"(?:in user code|Graph execution error):$|Exception encountered when calling "
    r"|Detected at node |<stack traces unavailable>$|\s*$|\s+File \""
)


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


@dataclass(frozen=True)
class Failure:
    """An uncaught exception.

    Parameters
    ----------
    type : str
        The type with its module, as printed; empty if the log ends before it.
    message : str
        All lines of the message, without dumps of data.
    frames : tuple of Frame
        Outermost first.
    own : Frame or None
        The innermost frame in the user's own files.
    later : tuple of str
        The exceptions that it led to, each as ``Type: message`` on one line.
    """

    type: str
    message: str
    frames: tuple[Frame, ...]
    own: Frame | None = None
    later: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """The first line of the message that is not mere introduction."""
        lines = self.message.splitlines()
        informative = [line for line in lines if not _MUTE.match(line)]
        return _MARKS.sub(r"\1", next(iter(informative or lines), "")).strip()


def find(text: str, script: str) -> Failure | None:
    """Return the last failure in a log.

    Parameters
    ----------
    text : str
        The log as a terminal shows it; it may contain ANSI codes.
    script : str
        The path of the user's script. Files in its folder count as the user's own,
        except installed packages.

    Returns
    -------
    Failure or None
        In a chain of exceptions, the first that passed through the user's files. If
        there is none, the first exception of the last chain.
    """
    chains = _chains(text)
    for chain in reversed(chains):
        for index, failure in enumerate(chain):
            own = next((at for at in reversed(failure.frames) if _owns(script, at.file)), None)
            if own is not None:
                return replace(failure, own=own, later=_titles(chain[index + 1 :]))
    return replace(chains[-1][0], later=_titles(chains[-1][1:])) if chains else None


def _titles(failures: list[Failure]) -> tuple[str, ...]:
    return tuple(f"{failure.type}: {failure.summary}".rstrip(": ") for failure in failures)


def _owns(script: str, file: str) -> bool:
    """Return whether `file` is the script or lies in its folder."""
    if file.startswith("<") or _INSTALLED.search(file):
        return False
    folder = posixpath.dirname(script).rstrip("/")
    return not posixpath.isabs(file) or not folder or file.startswith(f"{folder}/")


def _chains(text: str) -> list[list[Failure]]:
    """Return all failures in `text`, grouped into chains of exceptions."""
    lines = list(_clean(plain(text)))
    chains: list[list[Failure]] = []
    before, index = "", 0
    while index < len(lines):
        failure, after = _failure(lines, index)
        if failure and not _ASIDE.match(before):
            if _LINK.match(before) and chains:
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
        yield from _GLUED.split(line) if _HEAD in line or "] " in line else (line,)


def _failure(lines: list[str], index: int) -> tuple[Failure | None, int]:
    """Return the failure that starts at `index`, if there is one, and where it ends."""
    line = lines[index]
    if fatal := _FATAL.match(line):
        return _fatal(fatal[1], lines, index + 1)
    headed = line.endswith(_HEAD)
    if not headed and not _FRAME.match(line):
        return None, index + 1
    frames, end = _frames(lines, index + headed, foreign_lines=_FOREIGN_LINES if headed else 0)
    raised = _RAISED.match(lines[end]) if end < len(lines) else None
    if raised is None:
        return (Failure("", "", frames) if headed and frames else None), max(end, index + 1)
    message = _message(lines[end : end + _MESSAGE_LINES], raised.start(2))
    text = "\n".join(message).replace("(PerReplica:{\n})", "(PerReplica:{...})").strip()
    kind = raised[1] or raised[3]
    return _unfold(Failure(kind, _unquote(text) if kind == "KeyError" else text, frames)), end + 1


def _frames(lines: list[str], index: int, *, foreign_lines: int) -> tuple[tuple[Frame, ...], int]:
    """Return the frames of a traceback, and the index of the line that names the exception."""
    frames: list[Frame] = []
    foreign = 0
    for end in range(index, len(lines)):
        line = lines[end]
        if frame := _FRAME.match(line):
            frames.append(Frame(frame[1], int(frame[2]), frame[3] or ""))
        elif line[:1] == " " and frames:
            frames[-1] = (
                frames[-1] if frames[-1].source else replace(frames[-1], source=line.strip())
            )
        elif line.strip():
            foreign += 1
            if _RAISED.match(line) or _HEAD in line or foreign > foreign_lines:
                return tuple(frames), end
    return tuple(frames), len(lines)


def _message(lines: list[str], start: int) -> list[str]:
    """Return the lines of a message; the first given line also names the type."""
    noise = Noise()
    body = [lines[0], *takewhile(_goes_on, lines[1:])]
    shown = [line for line in body if not noise.hides(line)]
    first = lines[0][start:] if start > 0 else ""
    return [first, *(line for line in shown[1:] if not _NODES.match(line))]


def _unquote(text: str) -> str:
    """Return the lines that Keras put into a ``KeyError``, which prints them quoted."""
    try:
        key = ast.literal_eval(text) if text[:1] in {"'", '"'} and "\\n" in text else None
    except (SyntaxError, ValueError, MemoryError, RecursionError):  # not what repr() writes
        return text
    return plain(key) if isinstance(key, str) else text


def _goes_on(line: str) -> bool:
    ends = line.endswith(_HEAD) or _LINK.match(line) or _ASIDE.match(line)
    return not (ends or NATIVE.match(line) or _WARNED.match(line))


def _unfold(failure: Failure) -> Failure:
    """Return the failure that AutoGraph embeds, indented, in the message of another."""
    _, found, after = failure.message.partition("in user code:\n")
    lines = after.split("\n")
    inside = [line if _FRAME.match(line) else line.removeprefix("    ") for line in lines]
    inner, _ = _failure([_HEAD, *inside], 0)
    if not found or inner is None or not inner.type:
        return failure
    return replace(inner, frames=failure.frames + inner.frames)


def _fatal(what: str, lines: list[str], index: int) -> tuple[Failure, int]:
    """Read the output of ``faulthandler`` for a crash, which has the innermost frame first."""
    rest = islice(lines, index, index + _MESSAGE_LINES)
    for line in rest:
        index += 1
        if line.startswith("Current thread "):
            break
    frames = [Frame(at[1], int(at[2]), at[3]) for at in map(_STACK.match, rest) if at]
    return Failure("Fatal Python error", what, tuple(reversed(frames))), index
