"""The machine that figures come from: its shape, and what else it does meanwhile."""

from __future__ import annotations

import os
import platform
import resource
import time
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("mwmagic", "tensorflow", "keras", "ipykernel")


def model():
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), "")


def versions():
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            yield f"{name} {version(name)}"


def shape():
    """Return one line about this machine: CPUs, memory, system and versions."""
    gigabytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    cores = f"{len(os.sched_getaffinity(0))} CPUs ({model() or platform.machine()})"
    system = f"Linux {platform.release().partition('-')[0]}, Python {platform.python_version()}"
    return ", ".join((cores, f"{gigabytes:.0f} GB", system, *versions()))


BUSY_CORES = 0.1
"""From which other load on a figure counts as measured on a busy machine."""

IDLE = (3, 4)
"""The columns of /proc/stat that count idle time: idle and waiting for disks."""

GUEST = 8
"""From this column on, what /proc/stat counts is in other columns already."""


def busy():
    """Return the seconds of CPU time that this machine has spent so far."""
    first = Path("/proc/stat").read_text().partition("\n")[0].split()[1:]
    ticks = sum(int(n) for at, n in enumerate(first[:GUEST]) if at not in IDLE)
    return ticks / os.sysconf("SC_CLK_TCK")


def spent(usage):
    return usage.ru_utime + usage.ru_stime


class Load:
    """Counts CPU time that is not the case's; `add` takes what each of its processes used.

    A process adds what its own children used, if it has waited for them.
    """

    def __init__(self):
        self._own = 0.0
        self._since = self._moment()

    def _moment(self):
        return time.monotonic(), busy(), spent(resource.getrusage(resource.RUSAGE_SELF))

    def add(self, usage):
        self._own += spent(usage)

    def other(self):
        """Return how many cores all else kept busy, on average."""
        took, all_of_it, self_spent = (
            now - then for now, then in zip(self._moment(), self._since, strict=True)
        )
        return max(all_of_it - self_spent - self._own, 0.0) / max(took, 0.001)
