"""What a lost agent leaves behind on this machine.

An agent's workers die with it, but what they had started in sessions of their
own does not. The kernel gives it to the nearest ancestor that asks for it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["adopt", "end"]

_PR_SET_CHILD_SUBREAPER = 36
_PR_GET_CHILD_SUBREAPER = 37

_LOOKS = 200
"""How often to look for orphans before those left are given up."""

_PAUSE = 0.005
"""Seconds between two looks."""


def adopt() -> None:
    """Ask the kernel for the orphans among this process's descendants."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl failed")


def _adopts() -> bool:
    answer = ctypes.c_int()
    ctypes.CDLL(None).prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(answer), 0, 0, 0)
    return bool(answer.value)


def end(agents: Collection[int]) -> None:
    """End and reap the orphans that came to this process; nothing, unless it adopts.

    Parameters
    ----------
    agents : collection of int
        The ids of the only children that are its own.
    """
    for _ in range(_LOOKS if _adopts() else 0):
        orphans = [child.pid for child in psutil.Process().children() if child.pid not in agents]
        if not orphans:
            return
        for pid in orphans:
            with suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, os.WNOHANG)
        time.sleep(_PAUSE)
