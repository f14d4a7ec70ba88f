"""The agent's descendants: whose each is, the end of those that must not live on, and its own."""

from __future__ import annotations

import math
import os
import signal
import time
from contextlib import suppress

from .system import contents, tag_of
from .wire import AGENT_LOST, ENDED_EARLY, LABEL, as_bytes, as_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from .process import Process

UNKNOWN_OWNER = "\0"
"""The owner of a process that died before its owner could be determined."""

LEAST_TAG_MICROSECONDS = 1 << 50
"""Tags are limits of 35 years and more, which no process reaches."""

TAG_COUNT = 1 << 20
"""How many tags an agent has before it gives the first one out again."""

ENVIRONMENT_BYTES = 4 << 20
"""How much of a process's environment is searched for its label."""

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Row:
    """One line of the kernel's process table, from ``/proc/PID/stat``."""

    __slots__ = (
        "cpu",
        "mapped",
        "memory",
        "owner",
        "parent",
        "pid",
        "session",
        "start",
        "state",
        "threads",
    )

    def __init__(self, pid: int, stat: bytes) -> None:
        fields = stat[stat.rindex(b")") + 2 :].split()
        self.pid = pid
        self.state = fields[0].decode()
        self.parent, self.session = int(fields[1]), int(fields[3])
        self.cpu = sum(int(field) for field in fields[11:15]) / TICKS_PER_SECOND
        self.threads = int(fields[17])
        self.start = int(fields[19])
        self.mapped = fields[20] != b"0"
        self.memory = int(fields[21]) * PAGE_BYTES
        self.owner: str | None = None

    @property
    def alive(self) -> bool:
        """Whether any of its threads is still alive."""
        return self.state not in "ZX" or self.threads > 1  # the first one may end first


def table() -> list[Row]:
    """Return all processes that this one can see."""
    rows = []
    for name in os.listdir("/proc"):  # noqa: PTH208 - pathlib costs a third of the start-up
        if name.isdigit():
            stat = contents(f"/proc/{name}/stat")
            if stat:
                rows.append(Row(int(name), stat))
    return rows


class Family:
    """The agent's descendants, each with the name of the worker that it belongs to.

    A process that a worker leaves behind becomes a child of the agent, which is a subreaper. It is
    recognised by its session, by the tag that it inherits, by the label in its environment, or
    because it was seen below its worker before.
    """

    def __init__(self) -> None:
        self.agent = os.getpid()
        self.mains: dict[int, str] = {}
        self.helpers: set[int] = set()
        self.seen: dict[tuple[int, int], str] = {}
        self.tags: dict[int, str] = {}
        self.given = 0

    def tag(self, name: str) -> int:
        """Return a tag for a worker; those of an agent within a worker are others."""
        self.given = (self.given + 1) % TAG_COUNT
        tag = LEAST_TAG_MICROSECONDS + self.agent * TAG_COUNT + self.given
        self.tags[tag] = name
        return tag

    def __contains__(self, pid: int) -> bool:
        return pid in self.mains or pid in self.helpers

    def look(self) -> list[Row]:
        """Return the descendants, including zombies."""
        children: dict[int, list[Row]] = {}
        for row in table():
            children.setdefault(row.parent, []).append(row)
        found: list[Row] = []
        for top in children.get(self.agent, []):
            owner = self.owner(top)
            branch = [top]
            for row in branch:
                row.owner = owner
                branch += children.get(row.pid, [])
            found += branch
        self.seen = {(row.pid, row.start): row.owner for row in found if row.owner}
        return found

    def owner(self, row: Row) -> str | None:
        """Return the worker that a child of the agent belongs to."""
        if row.pid in self.helpers:
            return None
        known = self.mains.get(row.pid) or self.mains.get(row.session)
        known = known or self.tags.get(tag_of(row.pid) or 0) or self.labelled(row.pid)
        known = known or self.seen.get((row.pid, row.start))
        return known or (UNKNOWN_OWNER if self.dead(row.pid) else None)

    def dead(self, pid: int) -> bool:
        """Return whether a process has ended or is about to, as its environment is gone."""
        stat = contents(f"/proc/{pid}/stat")
        row = Row(pid, stat) if stat else None
        return row is None or not (row.alive and row.mapped)

    def labelled(self, pid: int) -> str | None:
        """Return the worker's name in the label in a process's environment."""
        start = as_bytes(f"{LABEL}={self.agent}/")
        for variable in (contents(f"/proc/{pid}/environ", ENVIRONMENT_BYTES) or b"").split(b"\0"):
            if variable.startswith(start):
                return as_text(variable[len(start) :])
        return None

    def kill(self, rows: Iterable[Row], *, alone: bool = False) -> None:
        """Kill processes; unless others are spared, with their groups.

        A fork in progress cannot escape that.
        """
        own = os.getpgid(0)
        for row in (row for row in rows if row.alive):
            # It may be gone by now, or out of reach because it changed its user.
            with suppress(ProcessLookupError, PermissionError):
                # When its row was read, it may have been in the group of the zygote that forked it.
                group = os.getpgid(row.pid)
                os.kill(row.pid if alone or group == own else -group, signal.SIGKILL)


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

HUNT_SECONDS = 8.0
"""How long after a worker's exit its descendants are killed before they count as unkillable.

Processes that fork all the time, each into a session of its own, are hit by chance. All of thirty
were gone 1.3 to 2.5 s after the exit, in 27 tries on two cores, of which they have HELPER_SECONDS.
"""


class Reaper:
    """Kills the descendants of workers that end, and waits for orphans.

    `left` has the descendants that must die, by owner, as they were last seen.
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
        killed = (process for process in self.processes.values() if process.kill_requested)
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
        if not (process.kill_requested and self.awaiting):
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


UNKILLABLE_SECONDS = 3.0
"""How long closing waits for processes that cannot be killed."""


class Closing:
    """Whether the agent is closing, since when, and why.

    `since` is when everything began to end, and `asked` when a signal asked it to close, infinite
    if none did. It has a `cause` unless its supervisor asked it to close, and may then wait for its
    workers. The reader has `drain_seconds` to read the last events.
    """

    def __init__(self) -> None:
        self.since: float | None = None
        self.cause: str | None = None
        self.asked = math.inf
        self.drain_seconds = 0.0

    @property
    def waits(self) -> bool:
        """Whether workers have their grace before the agent closes."""
        return self.asked < math.inf and self.since is None

    @property
    def late(self) -> bool:
        """Whether there is no time left to wait for anything."""
        return self.since is not None and time.monotonic() > self.since + UNKILLABLE_SECONDS

    @property
    def parting(self) -> dict[str, str]:
        """The reason for a process that ends with the agent, and what happened to the agent."""
        if self.cause is None:
            return {}
        return {"reason": AGENT_LOST, "error": self.cause}

    @property
    def early(self) -> dict[str, str]:
        """The reason and the error for a process that ends before it has started."""
        return self.parting or {"reason": ENDED_EARLY, "error": "ended before it had started"}
