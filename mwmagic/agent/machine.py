"""What this machine has: processors, memory and its limit, GPUs, addresses."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import sys
from contextlib import suppress

from .inquiry import Inquiry
from .system import contents
from .wire import as_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from .inquiry import Inquiries
    from .loop import EventWriter

TOOL = "nvidia-smi"
"""The driver's own tool: asking a framework would take seconds, and memory on each GPU."""

QUERY = [TOOL, "--query-gpu=index,name,memory.total", "--format=csv,noheader"]

GPU_SECONDS = 20.0
"""How long the tool may take to answer."""

SIOCGIFADDR = 0x8915
GLOBAL_SCOPE = "00"


def machine() -> dict[str, Any]:
    """Return what can be found out about this machine without running another program."""
    total = memory_total()
    return {
        "host": os.uname().nodename,
        "addresses": addresses(),
        "processors": len(os.sched_getaffinity(0)),
        "memory": min(total, memory_limit() or total),
        "python": python(),
        "visible": os.environ.get("CUDA_VISIBLE_DEVICES"),
    }


def memory_total() -> int:
    """Return the bytes of memory of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def memory_taken() -> int:
    """Return the bytes of memory of this machine that no further process could get."""
    kilobytes = sizes("/proc/meminfo")
    return max(kilobytes.get(b"MemTotal:", 0) - kilobytes.get(b"MemAvailable:", 0), 0) << 10


def usage() -> dict[str, Any]:
    """Return how much of this machine is in use: its load over a minute, and bytes of memory."""
    of_group = memory_used(memory_total())
    return {
        "load": round(os.getloadavg()[0], 2),
        "memory": memory_taken() if of_group is None else of_group,
    }


def python() -> str:
    """Return the version of this interpreter."""
    return ".".join(str(part) for part in sys.version_info[:3])


def addresses() -> dict[str, list[str]]:
    """Return the addresses at which others may reach this machine, by interface."""
    found: dict[str, list[str]] = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        for _, name in socket.if_nameindex():
            with suppress(OSError):  # it has no address
                request = struct.pack("256s", name.encode()[:15])
                packed = fcntl.ioctl(one.fileno(), SIOCGIFADDR, request)[20:24]
                found[name] = [socket.inet_ntoa(packed)]
    for line in as_text(contents("/proc/net/if_inet6") or b"").splitlines():
        digits, _, _, scope, _, name = line.split()
        if scope == GLOBAL_SCOPE and digits.strip("0") != "1":
            address = socket.inet_ntop(socket.AF_INET6, bytes.fromhex(digits))
            found.setdefault(name, []).append(address)
    return {name: own for name, own in found.items() if not own[0].startswith("127.")}


def listed(text: str) -> list[dict[str, Any]]:
    """Return the GPUs that the tool lists: index, name, bytes of memory."""
    gpus = []
    for line in text.splitlines():
        index, *rest = [part.strip() for part in line.split(",")]
        if index.isdecimal():
            memory = rest.pop().split()[0] if len(rest) > 1 else ""
            size = int(memory) << 20 if memory.isdecimal() else None
            gpus.append({"index": int(index), "name": ", ".join(rest), "memory": size})
    return gpus


class Looks:
    """The `look` commands, which wait for the driver's answer."""

    def __init__(self, inquiries: Inquiries, events: EventWriter) -> None:
        self.inquiries = inquiries
        self.events = events

    def look(self, number: int) -> None:
        """Start to answer."""
        query = Inquiry(QUERY, dict(os.environ), GPU_SECONDS)
        self.inquiries.make(query, lambda said, why: self.looked(number, said, why))

    def looked(self, number: int, said: str, why: str | None) -> None:
        """Report what was found."""
        gpus = [] if why else listed(said)
        found = {"gpus": gpus, "why": None if gpus else why or f"{TOOL} lists none"}
        self.events.emit("looked", id=number, machine={**machine(), **found})


def files(second: str, first: str) -> Iterable[str]:
    """Yield the possible paths of a file, named as in cgroup v2 and v1, also inside a container."""
    for line in as_text(contents("/proc/self/cgroup") or b"").splitlines():
        _, controllers, path = line.split(":", 2)
        for group in (path.rstrip("/"), ""):
            if not controllers:
                yield f"/sys/fs/cgroup{group}/{second}"
            elif controllers == "memory":
                yield f"/sys/fs/cgroup/memory{group}/{first}"


USED = {
    "memory.max": ("memory.current", b"inactive_file"),
    "memory.limit_in_bytes": ("memory.usage_in_bytes", b"total_inactive_file"),
}
"""Beside the file with a limit: the file that says what is used, and what `memory.stat` calls the
cached files that the kernel drops when it needs the room."""


def limits() -> Iterable[tuple[str, int]]:
    """Yield each file that limits the group's memory, and the limit in bytes."""
    for path in files("memory.max", "memory.limit_in_bytes"):
        limit = (contents(path) or b"").strip()
        if limit.isdigit():
            yield path, int(limit)


def memory_limit() -> int | None:
    """Return the bytes of memory that the group may use, if it is limited."""
    return next((limit for _, limit in limits()), None)


def memory_used(total: int) -> int | None:
    """Return the bytes that the group uses without caches, if it may use less than `total`."""
    path, limit = next(iter(limits()), ("", total))
    if limit >= total:
        return None
    folder, _, name = path.rpartition("/")
    used, cache = USED[name]
    size = (contents(f"{folder}/{used}") or b"").strip()
    cached = sizes(f"{folder}/memory.stat").get(cache, 0)
    return max(int(size) - cached, 0) if size.isdigit() else None


def sizes(path: str) -> dict[bytes, int]:
    """Return the numbers in a file of the kernel's that has a name and a number in each line."""
    rows = (line.split() for line in (contents(path) or b"").splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) > 1 and row[1].isdigit()}


class Oom:
    """The kernel's count of out-of-memory kills in this process's control group."""

    def __init__(self) -> None:
        self.claimed = 0
        paths = files("memory.events", "memory.oom_control")
        self.path = next((path for path in paths if self.read(path) is not None), None)

    def read(self, path: str | None) -> int | None:
        """Return the count in a file."""
        for line in (contents(path) or b"").splitlines() if path else ():
            if line.startswith(b"oom_kill "):
                return int(line.split()[1])
        return None

    def mark(self) -> int | None:
        """Return the number of kills that are not yet attributed to a worker's exit."""
        count = self.read(self.path)
        return None if count is None else count - self.claimed

    def claim(self, since: int | None) -> bool | None:
        """Return whether the count has grown since a mark, and attribute one kill."""
        now = self.mark()
        if now is None or since is None:
            return None
        self.claimed += now > since
        return now > since
