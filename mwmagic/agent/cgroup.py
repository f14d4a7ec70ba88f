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


def memory_limit() -> int | None:
    """Return the bytes of memory that the group may use, if it is limited."""
    for path in files("memory.max", "memory.limit_in_bytes"):
        limit = (contents(path) or b"").strip()
        if limit.isdigit():
            return int(limit)
    return None


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
