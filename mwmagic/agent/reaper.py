"""The end of processes that must not live on."""

from __future__ import annotations

import os

from .family import UNKNOWN_OWNER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .closing import Closing
    from .family import Family, Row
    from .process import Process

FIRST_RESCAN_SECONDS = 0.002
"""Interval between two scans for descendants that must die, at first."""

AWAITED_RESCAN_SECONDS = 0.05
"""The least interval while killed workers end, since the end of the last is noticed at once."""

LATER_RESCAN_SECONDS = 0.2
"""The interval it grows to while they do not die."""


HELPER_SECONDS = 1.0
"""How long a worker's descendants may outlive it: some have work to do only then.

The resource tracker of `multiprocessing` removes shared memory that its process left; it ends by
itself, as its pipe ends.
"""

CLOSING_HELPER_SECONDS = 0.2
"""The same while the agent closes, when everything is to end at once."""


class Reaper:
    """Kills the descendants of workers that end, and waits for orphans.

    Attributes
    ----------
    left : dict
        The descendants that must die, by owner, when last seen.
    """

    def __init__(self, family: Family, processes: dict[str, Process], closing: Closing) -> None:
        self.family = family
        self.processes = processes
        self.closing = closing
        self.left: dict[str | None, list[int]] = {}
        self.rescan, self.delay, self.clear = 0.0, FIRST_RESCAN_SECONDS, 0

    def reap(self) -> None:
        """Wait for the orphans that the agent adopted, so that none stays a zombie."""
        if any(not process.pid for process in self.processes.values()):
            return  # one of them may be a worker that a zygote has just forked
        while True:
            try:
                info = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if info is None or info.si_pid in self.family:
                return  # its own callback waits for it
            os.waitpid(info.si_pid, 0)
            self.hurry()

    @property
    def purging(self) -> bool:
        """Whether there may be descendants that must die."""
        dying = any(process.dying for process in self.processes.values())
        return dying or bool(self.left) or self.closing.since is not None

    def purge(self, now: float) -> None:
        """Kill the descendants of workers that have ended or must end."""
        if now < self.rescan or not self.purging:
            return
        rows = [row for row in self.family.look() if self.lost(row)]
        spared = [row.pid for row in rows if self.spared(row, now)]
        known = [row for row in rows if row.owner != UNKNOWN_OWNER]
        self.family.kill([row for row in known if row.pid not in spared], alone=bool(spared))
        self.left.clear()
        for row in rows:  # zombies count too: what they forked last may be too new to be seen
            self.left.setdefault(row.owner, []).append(row.pid)
        # One scan may miss a process that forks and ends during the scan: one more, at once.
        self.clear = 0 if self.left else self.clear + 1
        self.rescan = now + (0.0 if self.clear == 1 else self.interval())

    def interval(self) -> float:
        """Return how long to wait for the next scan."""
        delay, self.delay = self.delay, min(2 * self.delay, LATER_RESCAN_SECONDS)
        return max(delay, AWAITED_RESCAN_SECONDS) if self.awaiting else delay

    @property
    def awaiting(self) -> bool:
        """Whether a worker has been killed and has not ended yet."""
        killed = (process for process in self.processes.values() if process.doomed)
        return any(process.pid and not process.exit for process in killed)

    def lost(self, row: Row) -> bool:
        """Return whether a descendant must die; any must, once its worker's exit is reported."""
        if self.closing.since is not None or row.owner == UNKNOWN_OWNER:
            return True
        if row.owner is None:
            return False
        process = self.processes.get(row.owner)
        return process is None or process.dying

    def spared(self, row: Row, now: float) -> bool:
        """Return whether a descendant still has time to end by itself, as its worker ends."""
        process = self.processes.get(row.owner or "")
        if process is None or row.pid == process.pid:
            return False
        limit = HELPER_SECONDS if self.closing.since is None else CLOSING_HELPER_SECONDS
        return process.exit is None or now < process.exited_at + limit

    def ended(self, process: Process) -> None:
        """Look for what a worker left; of those killed together, which are known, for the last."""
        if not (process.doomed and self.awaiting):
            self.hurry()

    def hurry(self) -> None:
        """Look for descendants that must die now, and often from now on."""
        self.rescan, self.delay, self.clear = 0.0, FIRST_RESCAN_SECONDS, 0

    def remains(self, name: str) -> list[int]:
        """Return the processes that a worker left behind and that still exist."""
        return self.left.get(name, []) + self.left.get(UNKNOWN_OWNER, [])

    def cleared(self, name: str) -> bool:
        """Return whether nothing that a worker left behind has to be waited for."""
        return not self.left.keys() & {name, UNKNOWN_OWNER} and self.clear != 1
