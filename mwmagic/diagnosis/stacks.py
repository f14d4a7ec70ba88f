"""Find out where each task is from the stacks that ``faulthandler`` wrote.

The bootstrap registers ``faulthandler`` for a signal, so even a process whose
main thread is inside a C call, such as a collective, dumps its stacks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from mwmagic.frameworks.patterns import either
from mwmagic.logs.frame import Frame
from mwmagic.model.ownership import is_users
from mwmagic.model.position import Position, Whereabouts

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Stack", "parse", "position", "positions"]

_FRAME = re.compile(r'  File "(?P<file>.+)", line (?P<line>\d+) in (?P<function>.+)')
_THREAD = re.compile(r"^(?:Current thread|Thread) 0x[0-9a-f]+.*$", re.MULTILINE)
_ENTRIES = ("/mwmagic/worker/bootstrap.py", "/mwmagic/agent/zygote.py")
"""The files that run the user's file, in the thread that does."""


@cache
def _framework() -> re.Pattern[str]:
    return either(lambda one: one.frames)


@dataclass(frozen=True)
class Stack:
    """The main thread's stack of one task.

    Parameters
    ----------
    text : str
        Every thread's stack, as ``faulthandler`` writes it.
    at : str or None
        The innermost line of the user's own code, as ``file:line in function``.
    waits : bool
        Whether that line has called an operation of the framework.
    frame : Frame or None
        That line, without its source.
    """

    text: str
    at: str | None
    waits: bool
    frame: Frame | None = None


def _main_thread(text: str) -> list[re.Match[str]]:
    """Return the frames of the thread that runs the user's file, innermost first."""
    threads = [list(_FRAME.finditer(part)) for part in _THREAD.split(text)]
    mains = [frames for frames in threads if any(map(_enters, frames))]
    return mains[-1] if mains else (threads[-1] if threads else [])


def _enters(frame: re.Match[str]) -> bool:
    return frame["file"].endswith(_ENTRIES)


def _inside(frame: re.Match[str]) -> bool:
    """Return whether a frame is of an operation of a framework."""
    return _framework().search(frame["file"]) is not None


def parse(text: str, script: str = "") -> Stack:
    """Parse one dump."""
    frames = _main_thread(text)
    users = [frame for frame in frames if is_users(frame["file"], script)]
    if not users:
        return Stack(text, None, waits=False)
    # A framework may lie anywhere on `PYTHONPATH`, where what is not installed is the user's.
    inner = next((frame for frame in users if not _inside(frame)), users[0])
    waits = any(map(_inside, frames[: frames.index(inner)]))
    at = f"{Path(inner['file']).name}:{inner['line']} in {inner['function']}"
    frame = Frame(inner["file"], int(inner["line"]), inner["function"])
    return Stack(text, at, waits=waits, frame=frame)


def positions(
    stacks: Mapping[str, Stack | None],
    states: Mapping[str, str],
    deaf: Mapping[str, Whereabouts] | None = None,
) -> tuple[Position, ...]:
    """Return where each task is, the tasks that hold up the others first."""
    order = sorted(stacks, key=lambda task: _waits(stacks[task]))
    known = {
        task: Position(task, why) for task, why in (deaf or {}).items() if states.get(task) != "T"
    }
    return tuple(
        known.get(task) or position(task, stacks[task], states.get(task, "")) for task in order
    )


def _waits(stack: Stack | None) -> bool:
    return stack is not None and stack.waits


def position(task: str, stack: Stack | None, state: str = "") -> Position:
    """Return where a task is, from its stack and the state of its process."""
    if state == "T":
        return Position(task, Whereabouts.STOPPED)
    if stack is None:
        return Position(task, Whereabouts.NO_ANSWER)
    if stack.at is None:
        return Position(task, Whereabouts.NO_USER_CODE)
    inside = Whereabouts.IN_FRAMEWORK if stack.waits else Whereabouts.IN_USER_CODE
    return Position(task, inside, stack.at)
