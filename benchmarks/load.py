"""What else the machine does while a case is measured."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

BUSY_CORES = 0.1
"""From which other load on a figure counts as measured on a busy machine."""

IDLE = (3, 4)
"""The columns of /proc/stat that count idle time: idle and waiting for disks."""

GUEST = 8
"""From this column on, what /proc/stat counts is in other columns already."""


def busy():
    """Return the seconds of processor time that this machine has spent so far."""
    first = Path("/proc/stat").read_text().partition("\n")[0].split()[1:]
    ticks = sum(int(n) for at, n in enumerate(first[:GUEST]) if at not in IDLE)
    return ticks / os.sysconf("SC_CLK_TCK")


def spent(usage):
    return usage.ru_utime + usage.ru_stime


class Load:
    """Counts processor time that is not the case's; `add` takes what each of its processes used.

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
