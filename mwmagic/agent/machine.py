"""What this machine has: processors, memory, GPUs, addresses."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import sys
from contextlib import suppress

from .cgroup import memory_limit, memory_used, sizes
from .inquiry import Inquiry
from .system import contents
from .wire import as_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .inquiry import Inquiries
    from .outlet import Outlet

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

    def __init__(self, inquiries: Inquiries, outlet: Outlet) -> None:
        self.inquiries = inquiries
        self.outlet = outlet

    def look(self, number: int) -> None:
        """Start to answer."""
        query = Inquiry(QUERY, dict(os.environ), GPU_SECONDS)
        self.inquiries.make(query, lambda said, why: self.looked(number, said, why))

    def looked(self, number: int, said: str, why: str | None) -> None:
        """Report what was found."""
        gpus = [] if why else listed(said)
        found = {"gpus": gpus, "why": None if gpus else why or f"{TOOL} lists none"}
        self.outlet.emit("looked", id=number, machine={**machine(), **found})
