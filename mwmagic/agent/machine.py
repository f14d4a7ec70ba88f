"""What this machine has: CPUs, memory and its limit, GPUs, addresses, and its files.

A supervisor that does not share its disk reads and writes files in pieces. Some of it is asked of
other programs, such as which versions of packages there are.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import stat
import struct
import sys
import time
from contextlib import suppress

from .system import contents, spawn, waiting_in
from .wire import CHUNK_BYTES, as_bytes, as_text, packed, parsed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from .family import Family
    from .system import EventWriter, Loop

TOOL = "nvidia-smi"
"""The driver's own tool: asking a framework would take seconds, and memory on each GPU."""

QUERY = [TOOL, "--query-gpu=index,name,memory.total", "--format=csv,noheader"]

GPU_SECONDS = 20.0
"""How long the tool may take to answer."""

USE_QUERY = [
    TOOL,
    "--query-gpu=index,utilization.gpu,memory.used",
    "--format=csv,noheader,nounits",
]

USE_SECONDS = 15.0
"""The least time between two questions about the use of GPUs: one takes 50 ms of a CPU."""

SIOCGIFADDR = 0x8915
GLOBAL_SCOPE = "00"

PROGRAM = os.path.abspath(sys.argv[0])  # noqa: PTH100 - pathlib is slow to import
"""The agent's own program, which answers some inquiries."""

ANSWER_BYTES = 4 << 20
"""The most that is read of an answer."""


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
    """Return how much of this machine is in use.

    That is its load over a minute, bytes of memory, and bytes that its network has carried so far.
    """
    of_group = memory_used(memory_total())
    received, sent = carried()
    return {
        "load": round(os.getloadavg()[0], 2),
        "memory": memory_taken() if of_group is None else of_group,
        "received": received,
        "sent": sent,
    }


def carried() -> tuple[int, int]:
    """Return the bytes that all interfaces but the loopback have received and sent so far."""
    received = sent = 0
    for line in (contents("/proc/net/dev") or b"").splitlines():
        name, _, counts = line.partition(b":")
        numbers = counts.split()
        if len(numbers) > 8 and name.strip() != b"lo":  # noqa: PLR2004 - the column of what is sent
            received, sent = received + int(numbers[0]), sent + int(numbers[8])
    return received, sent


def transferred(pid: int) -> dict[str, int]:
    """Return the bytes that a process has read from disks and written to them so far."""
    counts = sizes(f"/proc/{pid}/io")
    return {"read": counts.get(b"read_bytes:", 0), "written": counts.get(b"write_bytes:", 0)}


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


def used_gpus(text: str) -> dict[str, list[int]]:
    """Return the percentage of the time that each GPU computes, and bytes of its memory."""
    found = {}
    for line in text.splitlines():
        index, *numbers = [part.strip() for part in line.split(",")]
        if len(numbers) == 2 and all(one.isdecimal() for one in (index, *numbers)):  # noqa: PLR2004
            found[index] = [int(numbers[0]), int(numbers[1]) << 20]
    return found


class Looks:
    """The `look` commands, which wait for the driver's answer, and the use of the GPUs it lists."""

    def __init__(self, inquiries: Inquiries, events: EventWriter) -> None:
        self.inquiries = inquiries
        self.events = events
        self.used: dict[str, list[int]] = {}
        self.next_use = float("inf")

    def look(self, number: int) -> None:
        """Start to answer."""
        query = Inquiry(QUERY, dict(os.environ), GPU_SECONDS)
        self.inquiries.make(query, lambda said, why: self.looked(number, said, why))

    def looked(self, number: int, said: str, why: str | None) -> None:
        """Report what was found."""
        gpus = [] if why else listed(said)
        self.next_use = time.monotonic() if gpus else float("inf")
        found = {"gpus": gpus, "why": None if gpus else why or f"{TOOL} lists none"}
        self.events.emit("looked", id=number, machine={**machine(), **found})

    def gpus_of(self, env: dict[str, str]) -> list[list[int]]:
        """Return the latest use of the GPUs that a worker with this environment sees."""
        visible = env.get("CUDA_VISIBLE_DEVICES")
        if visible is None:
            return [*self.used.values()]
        return [self.used[index] for index in visible.split(",") if index in self.used]

    def measure(self, now: float) -> None:
        """Ask how much the GPUs are used, if there are any and it is time."""
        if now >= self.next_use:
            self.next_use = now + USE_SECONDS
            query = Inquiry(USE_QUERY, dict(os.environ), GPU_SECONDS)
            self.inquiries.make(query, self.measured)

    def measured(self, said: str, why: str | None) -> None:
        """Keep how much the GPUs are used; a driver that does not say is not asked again."""
        self.used = {} if why else used_gpus(said)
        if not self.used:
            self.next_use = float("inf")


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


def file_piece(path: str, offset: int, count: int) -> dict[str, Any]:
    """Return a piece of a regular file, at most one chunk, and the size of the file."""
    if offset < 0 or count < 0:
        raise ValueError(f"there is no piece of {count} bytes at {offset}")
    # If it is a pipe, neither opening nor reading may wait for the other end.
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
    descriptor = os.open(as_bytes(path), flags)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError(f"{path} is not a regular file")
        data = os.pread(descriptor, min(count, CHUNK_BYTES), offset)
    finally:
        os.close(descriptor)
    return {"offset": offset, "data": packed(data), "size": status.st_size}


FILES_LIMIT = 10_000
"""How many files a directory may hold whose files are named."""


def files_below(path: str) -> list[tuple[str, int]]:
    """Return the files below a directory and their bytes; of a file itself, whose name is empty."""
    status = os.stat(path)  # noqa: PTH116 - pathlib is slow to import
    if stat.S_ISREG(status.st_mode):
        return [("", status.st_size)]
    if not stat.S_ISDIR(status.st_mode):
        raise ValueError(f"{path} is neither a file nor a directory")
    found: list[tuple[str, int]] = []
    top = path.rstrip("/")
    for folder, _, names in os.walk(top, onerror=_fail):
        for name in names:
            full = f"{folder}/{name}"
            if os.path.isfile(full):  # noqa: PTH113 - as above
                found.append((full[len(top) + 1 :], os.path.getsize(full)))  # noqa: PTH202 - as above
        if len(found) > FILES_LIMIT:
            raise ValueError(f"{path} holds more than {FILES_LIMIT} files")
    return found


def _fail(error: OSError) -> None:
    """Raise an error that a walk would pass over."""
    raise error


def store_piece(path: str, offset: int, data: bytes) -> None:
    """Write a piece of a private file; the first replaces what was there."""
    if offset < 0:
        raise ValueError(f"nothing is stored at {offset}")
    try:
        os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)  # noqa: PTH103, PTH120 - pathlib is slow to import
        write_piece(path, offset, data, 0 if offset else os.O_TRUNC)
    except OSError as error:  # a write that fails does not name its file
        raise OSError(error.errno, error.strerror, path) from error


def write_piece(path: str, offset: int, data: bytes, more: int = 0) -> None:
    """Write a piece of a private file; `more` adds to the flags with which it is opened."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
    descriptor = os.open(as_bytes(path), flags | more, 0o600)
    try:
        while data:  # a disk that is nearly full takes a part
            written = os.pwrite(descriptor, data, offset)
            offset, data = offset + written, data[written:]
    finally:
        os.close(descriptor)


class Inquiry:
    """A child process that is asked something."""

    def __init__(
        self, argv: list[str], env: dict[str, str], seconds: float, question: bytes = b""
    ) -> None:
        self.name = argv[0].rpartition("/")[2]
        self.seconds = seconds
        self.output = os.memfd_create(self.name)
        stdin = os.memfd_create(self.name)
        try:
            os.pwrite(stdin, question, 0)
            self.pid, self.reply = spawn(argv, env, "/", (stdin, self.output))
        except OSError:
            os.close(self.output)
            raise
        finally:
            os.close(stdin)
        self.pidfd = os.pidfd_open(self.pid)
        self.deadline = time.monotonic() + seconds
        self.late = False

    def expire(self) -> None:
        """Kill it."""
        self.late = True
        self.deadline = float("inf")
        signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)

    @property
    def answer(self) -> str:
        """What it printed."""
        return as_text(os.pread(self.output, ANSWER_BYTES, 0)).strip()

    def trouble(self, status: int) -> str | None:
        """Return why there is no answer, if there is none."""
        if self.late:
            return f"{self.name} did not answer within {self.seconds:g} seconds"
        failed = waiting_in(self.reply)
        if failed:
            return as_text(failed)
        if status:
            return self.answer or f"{self.name} exits with {os.waitstatus_to_exitcode(status)}"
        return None

    def close(self) -> None:
        """Close all that is open."""
        for descriptor in (self.output, self.reply, self.pidfd):
            os.close(descriptor)


class Inquiries:
    """The inquiries that wait for an answer."""

    def __init__(self, loop: Loop, family: Family) -> None:
        self.loop = loop
        self.family = family
        self.open: set[Inquiry] = set()

    def make(self, inquiry: Inquiry, then: Callable[[str, str | None], None]) -> None:
        """Wait for an answer: `then` gets what was printed, and why there is no answer."""
        self.open.add(inquiry)
        self.family.helpers.add(inquiry.pid)
        self.loop.watch(inquiry.pidfd, lambda: self.answered(inquiry, then))

    def answered(self, inquiry: Inquiry, then: Callable[[str, str | None], None]) -> None:
        """Pass on an answer."""
        pid, status = os.waitpid(inquiry.pid, os.WNOHANG)
        if not pid:
            return
        then(inquiry.answer, inquiry.trouble(status))
        self.loop.unwatch(inquiry.pidfd)
        inquiry.close()
        self.open.discard(inquiry)
        self.family.helpers.discard(inquiry.pid)

    def expire(self, now: float) -> None:
        """Kill what takes too long."""
        for inquiry in self.open:
            if now >= inquiry.deadline:
                inquiry.expire()

    def moments(self) -> list[float]:
        """Return when the inquiries expire."""
        return [inquiry.deadline for inquiry in self.open]


FIND_SECONDS = 20.0
"""How long it may take: the packages may be on a disk across a network."""


class Packages:
    """The `find` commands, each answered by a Python with the workers' environment."""

    def __init__(self, inquiries: Inquiries, events: EventWriter) -> None:
        self.inquiries = inquiries
        self.events = events

    def find(self, number: int, names: list[str], env: dict[str, str]) -> None:
        """Start to answer."""
        argv = [sys.executable, PROGRAM, "versions", *names]
        inquiry = Inquiry(argv, env, FIND_SECONDS)
        self.inquiries.make(inquiry, lambda said, why: self.found(number, said, why))

    def found(self, number: int, said: str, why: str | None) -> None:
        """Report what was found: the last line, as start-up files of Python may print others."""
        try:
            versions = parsed(said.rpartition("\n")[2]) if why is None else {}
        except ValueError as error:
            why = str(error)
        if why is None:
            self.events.emit("found", id=number, versions=versions)
        else:
            self.events.emit("refused", command="find", id=number, reason=None, error=why)


def is_there(name: str) -> bool:
    """Return whether a package can be imported; what an uninstallation leaves behind cannot."""
    from importlib.util import find_spec

    try:
        spec = find_spec(name)
    except (ImportError, ValueError):
        return False
    return spec is not None and spec.origin is not None


def version_of(name: str) -> str | None:
    """Return the version of a package, no text if it has none, and None if it is not there."""
    from importlib.metadata import PackageNotFoundError, packages_distributions, version

    if not is_there(name):
        return None
    try:
        return version(name) or ""
    except PackageNotFoundError:  # tf-nightly and others bring the same package
        others = packages_distributions().get(name, ())
        return next((version(other) or "" for other in others), "")


def print_versions(names: Iterable[str]) -> None:
    """Print the versions as a line of JSON, in the workers' Python; it imports no package."""
    from .fork_server.zygote import hide_folder

    hide_folder()
    sys.stdout.write(json.dumps({name: version_of(name) for name in names}))
