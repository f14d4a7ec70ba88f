"""What a lost agent leaves behind on this machine.

An agent's workers die with it, but processes that they started in sessions of their
own do not. The kernel hands those to the nearest ancestor that asked for orphans.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import psutil

from mwmagic.agent.system import LIBC, PR_SET_CHILD_SUBREAPER, PR_SET_PDEATHSIG, prctl

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["adopt", "end"]

PR_GET_CHILD_SUBREAPER = 37

_LOOKS = 200
"""Looks for orphans before the remaining ones are given up."""

_PAUSE_SECONDS = 0.005
"""Seconds between two looks."""


def adopt() -> None:
    """Ask the kernel for the orphans among this process's descendants."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)


def survive_stops() -> None:
    """Go on when the owner dies: a process that is stopped by then could not end its cluster."""
    prctl(PR_SET_PDEATHSIG, signal.SIGCONT)


def _adopts() -> bool:
    answer = ctypes.c_int()
    LIBC.prctl(PR_GET_CHILD_SUBREAPER, ctypes.byref(answer), 0, 0, 0)
    return bool(answer.value)


def end(agents: Collection[int]) -> None:
    """Kill and reap the orphans that this process adopted, if it adopts any."""
    for _ in range(_LOOKS if _adopts() else 0):
        orphans = [child.pid for child in psutil.Process().children() if child.pid not in agents]
        if not orphans:
            return
        for pid in orphans:
            with suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, os.WNOHANG)
        time.sleep(_PAUSE_SECONDS)
