"""The end of what must not live on."""

from __future__ import annotations

import os

from .family import UNKNOWN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .closing import Closing
    from .family import Family, Row
    from .process import Process

RESCAN_SECONDS = 0.002
"""Between two looks for descendants that are to die, at first."""

RESCANS_SECONDS = 0.2
"""The same if they do not die."""


class Reaper:
    """Kills the descendants of workers that end, and waits for orphans.

    Attributes
    ----------
    left : dict
        The descendants that are to die, by their owner, as they were last seen.
    """

    def __init__(self, family: Family, processes: dict[str, Process], closing: Closing) -> None:
        self.family = family
        self.processes = processes
        self.closing = closing
        self.left: dict[str | None, list[int]] = {}
        self.rescan, self.delay, self.clear = 0.0, RESCAN_SECONDS, 0

    def reap(self) -> None:
        """Wait for the orphans that came to the agent, so that none stays a zombie."""
        if any(not process.pid for process in self.processes.values()):
            return  # one of them may be a worker on its way from a zygote
        while True:
            try:
                info = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if info is None or info.si_pid in self.family:
                return  # its own callback waits for it
            os.waitpid(info.si_pid, 0)

    @property
    def purging(self) -> bool:
        """Whether there may be descendants that are to die."""
        dying = any(process.dying for process in self.processes.values())
        return dying or bool(self.left) or self.closing.since is not None

    def purge(self, now: float) -> None:
        """Kill the descendants of workers that have ended or are to end."""
        if now < self.rescan or not self.purging:
            return
        rows = [row for row in self.family.look() if self.lost(row)]
        self.family.kill(row for row in rows if row.owner != UNKNOWN)
        self.left.clear()
        for row in rows:  # the dead count too: what they forked last may be too new to be seen
            self.left.setdefault(row.owner, []).append(row.pid)
        # One look may miss a process that forks and ends while it lasts.
        self.clear = 0 if self.left else self.clear + 1
        self.rescan = now + self.delay
        self.delay = min(2 * self.delay, RESCANS_SECONDS)

    def lost(self, row: Row) -> bool:
        """Whether a descendant may not live on; not if its worker's exit was reported."""
        if self.closing.since is not None or row.owner == UNKNOWN:
            return True
        if row.owner is None:
            return False
        process = self.processes.get(row.owner)
        return process is None or process.dying

    def hurry(self) -> None:
        """Look at once for descendants that are to die, and often again."""
        self.rescan, self.delay, self.clear = 0.0, RESCAN_SECONDS, 0

    def remains(self, name: str) -> list[int]:
        """Return what a worker left behind and is still there."""
        return self.left.get(name, []) + self.left.get(UNKNOWN, [])

    def cleared(self, name: str) -> bool:
        """Whether nothing that a worker left behind is to be waited for."""
        return not self.left.keys() & {name, UNKNOWN} and self.clear != 1
