"""This process's control group: its memory limit and its out-of-memory kills."""

from __future__ import annotations

from .system import contents
from .wire import as_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


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
