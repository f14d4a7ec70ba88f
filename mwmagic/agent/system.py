"""Kernel services for which Python has no concise interface."""

from __future__ import annotations

import ctypes
import os
import resource
import struct
import time
from contextlib import suppress

from .wire import CHUNK_BYTES, as_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
PR_SET_MM, PR_SET_MM_MAP = 35, 14
MEMORY_MAP = "=12QIi"
"""The kernel's `prctl_mm_map`."""
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.malloc.restype = LIBC.sbrk.restype = ctypes.c_void_p


def prctl(option: int, value: int) -> None:
    """Set an attribute of this process in the kernel."""
    if LIBC.prctl(option, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl failed")


def wear(badge: int) -> None:
    """Give this process a number that its descendants inherit, even with another environment.

    It is kept in a limit that nothing else uses: the microseconds that a process with a real-time
    priority may run without a pause. Where limits cannot be set, there is no badge.
    """
    with suppress(ValueError, OSError):
        hard = resource.getrlimit(resource.RLIMIT_RTTIME)[1]
        resource.setrlimit(resource.RLIMIT_RTTIME, (badge, hard))


def show_command(words: list[str]) -> None:
    """Have the kernel show a command as that of this process, as in ``/proc/self/cmdline``.

    Where it cannot, it shows what it did before.
    """
    text = b"".join(as_bytes(word) + b"\0" for word in words)
    numbers = [
        int(one) for one in (contents("/proc/self/stat") or b"").rpartition(b")")[2].split()[1:]
    ]
    at = LIBC.malloc(len(text))  # never freed: the kernel reads it until the process ends
    if len(numbers) < 48 or at is None:  # noqa: PLR2004 - the end of the environment is the last
        return
    ctypes.memmove(at, text, len(text))
    code, stack, heap, environment = numbers[22:24], numbers[24], numbers[41:44], numbers[46:48]
    # No capability is needed to give all of these at once. The heap must not grow meanwhile.
    layout = (*code, *heap, LIBC.sbrk(0), stack, at, at + len(text), *environment, 0, 0, -1)
    size = ctypes.c_ulong(struct.calcsize(MEMORY_MAP))
    LIBC.prctl(PR_SET_MM, PR_SET_MM_MAP, struct.pack(MEMORY_MAP, *layout), size, ctypes.c_ulong())


def inherit(attributes: dict[str, Any]) -> None:
    """Give this process attributes of another one, as if that had started it.

    What is higher than it may be stays as it is.
    """
    if "umask" in attributes:
        os.umask(attributes["umask"])
    for name, limits in attributes.get("limits", {}).items():
        with suppress(ValueError, OSError, AttributeError):
            resource.setrlimit(getattr(resource, name), tuple(limits))
    if "nice" in attributes:
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, attributes["nice"])


def badge_of(pid: int) -> int | None:
    """Return the number that a process, which may be a zombie, got from `wear`."""
    for line in (contents(f"/proc/{pid}/limits") or b"").splitlines():
        if line.startswith(b"Max realtime timeout"):
            soft = line.split()[3]
            return int(soft) if soft.isdigit() else None
    return None


def contents(path: str, limit: int = CHUNK_BYTES) -> bytes | None:
    """Return the first bytes of a file, or None if it cannot be read."""
    try:
        descriptor = os.open(as_bytes(path), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        return os.read(descriptor, limit)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def catches(pid: int, number: int) -> bool:
    """Return whether a process has a handler for a signal and lets it run, as the kernel knows."""
    status = contents(f"/proc/{pid}/status") or b""
    rows = dict(line.split(b":", 1) for line in status.splitlines())
    caught, blocked = (int(rows.get(name, b"0"), 16) for name in (b"SigCgt", b"SigBlk"))
    return bool((caught & ~blocked) >> (number - 1) & 1)


def has_open(pid: int, path: str) -> bool:
    """Return whether a process has a file open."""
    try:
        file = os.stat(as_bytes(path))  # noqa: PTH116 - pathlib costs a third of the start-up
        numbers = os.listdir(f"/proc/{pid}/fd")  # noqa: PTH208 - the same
    except OSError:
        return False
    return any(same(file, f"/proc/{pid}/fd/{number}") for number in numbers)


def same(file: os.stat_result, path: str) -> bool:
    """Return whether a path leads to a file."""
    try:
        return os.path.samestat(file, os.stat(path))  # noqa: PTH116 - the same
    except OSError:  # it was closed in the meantime
        return False


def waiting_in(descriptor: int) -> bytes:
    """Return the current contents of a pipe."""
    try:
        return os.read(descriptor, CHUNK_BYTES)
    except BlockingIOError:
        return b""


def clocks() -> dict[str, Any]:
    """Return the current time on both clocks."""
    return {"time": time.monotonic(), "wall": time.time()}


def number_of(error: BaseException) -> int | None:
    """Return the system's number for an error, if it is one of the system's."""
    return getattr(error, "errno", None)


def reason_of(error: BaseException) -> str:
    """Return the message of an error, without its number."""
    return getattr(error, "strerror", None) or str(error)
