"""Where each task is: the stacks that ``faulthandler`` wrote, read.

The bootstrap registers ``faulthandler`` for SIGUSR1, so a dump comes even from
a process whose main thread is inside a C call, such as a collective.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from mwmagic.frameworks.patterns import either

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Stack", "Watch", "explain", "parse"]

_FRAME = re.compile(r'  File "(?P<file>.+)", line (?P<line>\d+) in (?P<function>.+)')
_THREAD = re.compile(r"^(?:Current thread|Thread) 0x[0-9a-f]+.*$", re.MULTILINE)
_LIBRARY = re.compile(r"/site-packages/|/dist-packages/|/lib/python3[.\d]*/|^<frozen")
_OWN = ("/mwmagic/worker/bootstrap.py", "/mwmagic/agent/zygote.py", "/mwmagic/agent/__main__.py")


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
    where : str or None
        The user's own innermost line, as ``file:line in function``.
    waits : bool
        Whether that line is inside an operation of the framework.
    """

    text: str
    where: str | None
    waits: bool


def _main_thread(text: str) -> list[re.Match[str]]:
    """Return the frames of the thread that runs the user's file, the innermost first."""
    threads = [list(_FRAME.finditer(part)) for part in _THREAD.split(text)]
    mains = [frames for frames in threads if any(_is_own(frame) for frame in frames)]
    return mains[-1] if mains else (threads[-1] if threads else [])


def _is_own(frame: re.Match[str]) -> bool:
    return frame["file"].endswith(_OWN)


def parse(text: str) -> Stack:
    """Read one dump."""
    frames = _main_thread(text)
    users = [f for f in frames if not _LIBRARY.search(f["file"]) and not _is_own(f)]
    if not users:
        return Stack(text, None, waits=False)
    inner = users[0]
    waits = any(_framework().search(frame["file"]) for frame in frames[: frames.index(inner)])
    place = f"{Path(inner['file']).name}:{inner['line']} in {inner['function']}"
    return Stack(text, place, waits=waits)


class Watch:
    """Waits for the dump that a signal sets off.

    Parameters
    ----------
    path : Path
        The file that ``faulthandler`` appends to.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._start = self._size()
        self._last = self._start

    def _size(self) -> int:
        return self._path.stat().st_size if self._path.exists() else 0

    def complete(self) -> bool:
        """Whether a dump came, and has not grown since the last look."""
        size, last = self._size(), self._last
        self._last = size
        return size == last and size > self._start

    def stack(self) -> Stack | None:
        """Return the dump; None when none came."""
        if self._size() == self._start:
            return None
        with self._path.open("rb") as file:
            file.seek(self._start)
            return parse(file.read().decode("utf-8", "replace"))


def explain(stacks: Mapping[str, Stack | None], states: Mapping[str, str]) -> list[str]:
    """Say of each task where it is, those that hold up the others first.

    Parameters
    ----------
    stacks : mapping of str to Stack or None
        By task; None where no dump came.
    states : mapping of str to str
        Each process's state, as ``/proc/PID/stat`` has it (``T`` is stopped).
    """
    lines = {task: _say(stack, states.get(task, "")) for task, stack in stacks.items()}
    order: Sequence[str] = sorted(lines, key=lambda task: _waits(stacks[task]))
    return [f"{task} {lines[task]}" for task in order]


def _waits(stack: Stack | None) -> bool:
    return stack is not None and stack.waits


def _say(stack: Stack | None, state: str) -> str:
    if state == "T":
        return "is stopped by a signal (SIGSTOP); SIGCONT lets it go on"
    if stack is None:
        return "gives no answer (in a system call that cannot be interrupted?)"
    if stack.where is None:
        return "runs none of the user's code"
    if stack.waits:
        return f"waits inside an operation of the framework, at {stack.where}"
    return f"is at {stack.where}, outside any operation of the framework"
