"""The agent's descendants, and which worker each belongs to."""

from __future__ import annotations

import os
import signal
from contextlib import suppress

from .system import badge_of, contents
from .variables import LABEL
from .wire import as_bytes, as_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


UNKNOWN_OWNER = "\0"
"""The owner of a process that died before its owner could be determined."""

LEAST_BADGE_MICROSECONDS = 1 << 50
"""Badges are limits of 35 years and more, which no process reaches."""

BADGE_COUNT = 1 << 20
"""How many badges an agent has before it gives the first one out again."""

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

    What a worker leaves behind becomes a child of the agent, which is a subreaper. It is recognised
    by its session, by the badge that it inherits, by the label in its environment, or because it
    was seen below its worker before.
    """

    def __init__(self) -> None:
        self.agent = os.getpid()
        self.mains: dict[int, str] = {}
        self.helpers: set[int] = set()
        self.seen: dict[tuple[int, int], str] = {}
        self.badges: dict[int, str] = {}
        self.given = 0

    def badge(self, name: str) -> int:
        """Return a badge for a worker; those of an agent within a worker are others."""
        self.given = (self.given + 1) % BADGE_COUNT
        badge = LEAST_BADGE_MICROSECONDS + self.agent * BADGE_COUNT + self.given
        self.badges[badge] = name
        return badge

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
        known = known or self.badges.get(badge_of(row.pid) or 0) or self.labelled(row.pid)
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
