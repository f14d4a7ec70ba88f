"""What the kernel, Python and TensorFlow count of this process all the time, read now and then."""

from __future__ import annotations

import gc
import os
import resource
import socket
import struct
import sys
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

__all__ = ["Collections", "has_accelerator", "links", "used"]

TCP_INFO_BYTES = 176
"""The part of `tcp_info` that is read."""

BYTES_ACKED_AT, BUSY_AT = 120, 168
"""Where it has the bytes that arrived at the other end, and the microseconds in which some were on
their way."""

ACCELERATORS = ("/dev/nvidia", "/dev/kfd", "/dev/accel", "/dev/vfio")
"""How the files of accelerators begin, which compute while this process's CPU time stands still."""


def used() -> dict[str, float]:
    """Return what this process has used so far, by the names of the fields of `Window`."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "cpu": usage.ru_utime + usage.ru_stime,
        "faults": usage.ru_majflt,
        "throttled": _throttled(),
        "traced": _traced(),
    }


class Collections:
    """How long Python's garbage collector runs, from now until the `end`.

    It is called back by the collector only that long: the program's interpreter is to end without
    anything of ours in its way.
    """

    def __init__(self) -> None:
        self.seconds = self._began = 0.0
        gc.callbacks.append(self._noted)

    def _noted(self, phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            self._began = time.monotonic()
        elif self._began:
            self.seconds += time.monotonic() - self._began

    def end(self) -> None:
        """Count no more."""
        with suppress(ValueError):  # it is over, or the program has emptied the list
            gc.callbacks.remove(self._noted)


def _traced() -> float:
    """Return for how long TensorFlow has traced functions."""
    module = sys.modules.get(
        "tensorflow.python.eager.polymorphic_function.tracing_compilation", None
    )
    with suppress(Exception):  # another version may not count it
        return float(module._graph_building_time_counter.get_cell().value()) / 1e6  # type: ignore[union-attr]  # noqa: SLF001
    return 0.0


def _throttled() -> float:
    """Return for how long this process's control group was not allowed to run."""
    file = _cpu_account()
    if file is None:
        return 0.0
    with suppress(OSError, ValueError):
        rows = dict(line.split() for line in file.read_text().splitlines())
        if "throttled_usec" in rows:
            return int(rows["throttled_usec"]) / 1e6
        return int(rows.get("throttled_time", 0)) / 1e9
    return 0.0


@cache
def _cpu_account() -> Path | None:
    """Return the file that counts that; a container sees its own group as the top one."""
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, kinds, path = line.split(":", 2)
            if kinds and "cpu" not in kinds.split(","):
                continue
            for top in ("/sys/fs/cgroup", "/sys/fs/cgroup/cpu"):
                for group in (f"{top}{path}", top):
                    file = Path(group, "cpu.stat")
                    if file.is_file() and "throttled" in file.read_text():
                        return file
    return None


class Traffic(NamedTuple):
    """What a connection has sent: bytes that arrived, and for how long some were underway."""

    sent: int
    seconds: float


def links() -> dict[tuple[str, int, int], Traffic]:
    """Return what this process's open connections have sent.

    A connection is known by the address of the other end, and by both ports.
    """
    found: dict[tuple[str, int, int], Traffic] = {}
    if socket.getdefaulttimeout() is not None:
        return found  # Python would make the program's own sockets non-blocking
    for descriptor in _sockets():
        with suppress(OSError, struct.error), socket.socket(fileno=os.dup(descriptor)) as one:
            if one.family not in (socket.AF_INET, socket.AF_INET6):
                continue
            peer, own = one.getpeername(), one.getsockname()
            info = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)
            sent, busy = (struct.unpack_from("=Q", info, at)[0] for at in (BYTES_ACKED_AT, BUSY_AT))
            address = peer[0].removeprefix("::ffff:")
            found[address, peer[1], own[1]] = Traffic(sent, busy / 1e6)
    return found


def _sockets() -> list[int]:
    return [number for number, target in _files() if target.startswith("socket:")]


def has_accelerator() -> bool:
    """Return whether this process has opened an accelerator."""
    return any(target.startswith(ACCELERATORS) for _, target in _files())


def _files() -> list[tuple[int, str]]:
    """Return the open files of this process."""
    found = []
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - this is read often
        with suppress(OSError):
            found.append((int(name), os.readlink(f"/proc/self/fd/{name}")))  # noqa: PTH115
    return found
