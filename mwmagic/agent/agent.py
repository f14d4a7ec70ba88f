"""The agent: the one process on a machine that starts, watches and ends its workers.

It is a single file of the standard library, so that an engine can run it anywhere with
``python -I -S agent.py``. Commands arrive on standard input and events leave on standard output,
one JSON object per line. Everything it starts ends with it: when standard input ends, when the
parent it was told to watch dies, or when no command has come for too long.

It has one thread, because the kernel ties a child's death signal to the thread that forked it.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import socket
import sys
import time
from contextlib import suppress

TYPE_CHECKING = False  # importing typing costs as much as everything else here together
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, NoReturn

VERSION = 1
CHUNK = 64 << 10  # bytes of log in one output event, and kept of an unread log at exit
LAG = 4 << 20  # bytes a reader may be behind before the log skips ahead
QUEUE = 256 << 10  # bytes waiting on standard output above which no more log is queued
BACKLOG = 8 << 20  # the same for what is left of a log when its worker has exited
PORTS = 4096  # that one command may hold; about 28,000 are free on a machine
LINE = 64 << 20  # bytes of the longest command
DRAIN = 2.0  # seconds after an exit to wait for what still holds the log
CLOSE = 3.0  # seconds after which closing no longer waits for what cannot be killed
RESCAN = 0.002  # seconds between two looks for descendants that are to die, at first
RESCANS = 0.2  # the same if they do not die
PACE = 0.002  # seconds between two rounds of output events
SMALL = 8 << 10  # bytes of output below which more of it is let gather in the pipe
GATHER = 0.001  # seconds for that: to look at every line that is printed slows its worker
WARM = 10.0  # seconds that a zygote may take to fork a worker
TICK = 60.0  # seconds of the longest sleep
STDIN, STDOUT = 0, 1
NUMBER = (int, float)
MAYBE_INT = (int, type(None))
MAYBE_STR = (str, type(None))
UNKNOWN = "\0"  # the owner of a process that died before it could be told
LABEL = "MWMAGIC_PROCESS"
PARTED = "ended with its agent, "
LABEL_ROOM = 256  # bytes that a zygote's environment keeps free for a label
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
LIBC = ctypes.CDLL(None, use_errno=True)
TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


def encoded(text: str) -> bytes:
    """Return the bytes that a JSON text stands for, whatever the locale."""
    return text.encode("utf-8", "surrogateescape")


def parsed(line: bytes) -> dict[str, Any]:
    """Return the JSON object in a line, or raise ValueError."""
    try:
        value = json.loads(line, parse_constant=refused_constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError("a command is a JSON object")  # noqa: TRY004 - one error for all bad lines
    return value


def refused_constant(name: str) -> NoReturn:
    """Refuse the numbers that Python's JSON has and JSON has not."""
    raise ValueError(f"{name} is not a number")


def prctl(option: int, value: int) -> None:
    """Set an attribute of this process in the kernel."""
    if LIBC.prctl(option, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl failed")


class Ports:
    """Placeholders that keep ports free for workers which bind beside them.

    A placeholder is bound with SO_REUSEPORT and never listens, so it gets no connections, and the
    kernel hands its port to nobody who does not ask for that very port with SO_REUSEPORT, as gRPC
    does, or SO_REUSEADDR, as PyTorch does.
    """

    def __init__(self) -> None:
        self.held: dict[int, socket.socket] = {}

    def hold(self, count: int) -> list[int]:
        """Hold `count` more ports, all or none."""
        if not 0 <= count <= PORTS:
            raise ValueError(f"{count} ports cannot be held: 0 to {PORTS} can")
        taken: list[socket.socket] = []
        try:
            taken.extend(self.placeholder() for _ in range(count))
        except OSError:
            for one in taken:
                one.close()
            raise
        ports = [one.getsockname()[1] for one in taken]
        self.held.update(zip(ports, taken, strict=True))
        return ports

    def placeholder(self) -> socket.socket:
        """Bind one free port on every address of this machine."""
        try:
            return self.bound(socket.AF_INET6, "::")
        except OSError:
            return self.bound(socket.AF_INET, "0.0.0.0")  # noqa: S104 - TensorFlow binds it too

    def bound(self, family: int, address: str) -> socket.socket:
        """Bind one free port of an address family."""
        one = socket.socket(family, socket.SOCK_STREAM)
        try:
            if family == socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            one.bind((address, 0))
            # Only now: the kernel is to choose the port as if nobody could share it.
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        except OSError:
            one.close()
            raise
        return one

    def release(self, ports: Iterable[int]) -> None:
        """Give ports back; those that are not held are left alone."""
        for port in ports:
            if port in self.held:
                self.held.pop(port).close()


class Outlet:
    """Standard output, written without ever waiting for its reader."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.waiting = bytearray()
        self.broken = False
        os.set_blocking(descriptor, False)

    def put(self, event: dict[str, Any]) -> None:
        """Queue an event."""
        self.waiting += json.dumps(event, separators=(",", ":")).encode("ascii")
        self.waiting += b"\n"

    def flush(self) -> None:
        """Write what the reader takes now."""
        try:
            while self.waiting and not self.broken:
                del self.waiting[: os.write(self.descriptor, self.waiting[:CHUNK])]
        except BlockingIOError:
            pass
        except OSError:
            self.broken = True


class Log:
    """One worker's output: a pipe whose bytes go to a file at once, and on to a reader by credit.

    Nothing is kept in memory: what is forwarded is read back from the file.
    """

    def __init__(self, path: str, credit: int) -> None:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOCTTY
        self.file = os.open(encoded(path), flags, 0o600)
        self.size = self.sent = os.fstat(self.file).st_size
        self.credit = credit
        self.error: str | None = None
        self.ended = False
        self.reader, self.writer = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.reader, False)

    @property
    def ready(self) -> bool:
        """Whether there is something to forward, and credit for it."""
        return self.size > self.sent and self.credit > 0

    def tee(self) -> int:
        """Move what is in the pipe to the file; return how many bytes there were."""
        try:
            data = os.read(self.reader, CHUNK)
        except BlockingIOError:
            return 0
        taken = len(data)
        self.ended = not data
        try:
            while data:
                count = os.write(self.file, data)
                data = data[count:]
                self.size += count
        except OSError as error:
            self.error = f"the log lost {len(data)} bytes or more: {error.strerror}"
        return taken

    def launched(self) -> None:
        """Leave the pipe's other end to the worker."""
        os.close(self.writer)
        self.writer = -1

    def piece(self, limit: int) -> tuple[int, bytes]:
        """Return the offset and bytes to forward next, at most `limit`."""
        if self.size - self.sent > LAG:
            self.sent = self.size - CHUNK
        offset = self.sent
        data = b""
        with suppress(OSError):  # a file system that fails to read ends no training
            data = os.pread(self.file, min(limit, CHUNK), offset)
        self.sent = offset + len(data) if data else self.size  # or someone truncated the file
        self.credit -= len(data)
        return offset, data

    def close(self) -> None:
        """Close all that is open."""
        for descriptor in (self.file, self.reader, self.writer):
            if descriptor >= 0:
                os.close(descriptor)


class Row:
    """One line of the kernel's process table, from ``/proc/PID/stat``."""

    __slots__ = (
        "cpu",
        "group",
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
        self.parent, self.group, self.session = (int(field) for field in fields[1:4])
        self.cpu = sum(int(field) for field in fields[11:15]) / TICKS
        self.threads = int(fields[17])
        self.start = int(fields[19])
        self.mapped = fields[20] != b"0"
        self.memory = int(fields[21]) * PAGE
        self.owner: str | None = None

    @property
    def alive(self) -> bool:
        """Whether it still has anything to end."""
        return self.state not in "ZX" or self.threads > 1  # the first may end before the others


def table() -> list[Row]:
    """Return every process that this one may see."""
    rows = []
    for name in os.listdir("/proc"):  # noqa: PTH208 - pathlib costs a third of the start-up
        if name.isdigit():
            stat = contents(f"/proc/{name}/stat")
            if stat:
                rows.append(Row(int(name), stat))
    return rows


def contents(path: str, limit: int = CHUNK) -> bytes | None:
    """Return the first bytes of a file, or None if it cannot be read."""
    try:
        descriptor = os.open(encoded(path), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        return os.read(descriptor, limit)
    except OSError:
        return None
    finally:
        os.close(descriptor)


class Family:
    """The agent's descendants, each with the name of the worker that it belongs to.

    What a worker leaves behind becomes a child of the agent, which is a subreaper. It is known by
    its session, by the label in its environment, or because it was seen under its worker before.
    """

    def __init__(self) -> None:
        self.agent = os.getpid()
        self.mains: dict[int, str] = {}
        self.zygotes: set[int] = set()
        self.seen: dict[tuple[int, int], str] = {}

    def __contains__(self, pid: int) -> bool:
        return pid in self.mains or pid in self.zygotes

    def look(self) -> list[Row]:
        """Return the descendants, with those that are dead but still there."""
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
        if row.pid in self.zygotes:
            return None
        known = self.mains.get(row.pid) or self.mains.get(row.session)
        known = known or self.labelled(row.pid) or self.seen.get((row.pid, row.start))
        return known or (UNKNOWN if self.dead(row.pid) else None)

    def dead(self, pid: int) -> bool:
        """Whether a process has ended, or is about to: its environment goes with its memory."""
        stat = contents(f"/proc/{pid}/stat")
        row = Row(pid, stat) if stat else None
        return row is None or not (row.alive and row.mapped)

    def labelled(self, pid: int) -> str | None:
        """Return the name in the label of a process's environment."""
        start = encoded(f"{LABEL}={self.agent}/")
        for variable in (contents(f"/proc/{pid}/environ", 4 << 20) or b"").split(b"\0"):
            if variable.startswith(start):
                return variable[len(start) :].decode("utf-8", "surrogateescape")
        return None

    def kill(self, rows: Iterable[Row]) -> None:
        """Kill processes with their groups, which a fork in progress cannot escape."""
        own = os.getpgid(0)
        for row in (row for row in rows if row.alive):
            target = row.pid if row.group == own else -row.group
            # It may be gone by now, or have changed its user and be out of reach.
            with suppress(ProcessLookupError, PermissionError):
                os.kill(target, signal.SIGKILL)


class Oom:
    """The kernel's count of processes killed for memory in this process's control group."""

    def __init__(self) -> None:
        self.claimed = 0
        self.path = next((path for path in self.places() if self.read(path) is not None), None)

    def places(self) -> Iterable[str]:
        """Yield where the count may be: version 2, then version 1, also as a container sees it."""
        own = (contents("/proc/self/cgroup") or b"").decode("utf-8", "surrogateescape")
        for line in own.splitlines():
            _, controllers, path = line.split(":", 2)
            for place in (path.rstrip("/"), ""):
                if not controllers:
                    yield f"/sys/fs/cgroup{place}/memory.events"
                elif controllers == "memory":
                    yield f"/sys/fs/cgroup/memory{place}/memory.oom_control"

    def read(self, path: str | None) -> int | None:
        """Return the count in a file."""
        for line in (contents(path) or b"").splitlines() if path else ():
            if line.startswith(b"oom_kill "):
                return int(line.split()[1])
        return None

    def mark(self) -> int | None:
        """Return the count of kills that no worker's exit has accounted for."""
        count = self.read(self.path)
        return None if count is None else count - self.claimed

    def claim(self, since: int | None) -> bool | None:
        """Return whether the count has grown since a mark, and account for one kill."""
        now = self.mark()
        if now is None or since is None:
            return None
        self.claimed += now > since
        return now > since


def spawn(argv: list[str], env: dict[str, str], cwd: str, ends: tuple[int, int]) -> tuple[int, int]:
    """Fork and execute a command in a session of its own that dies with this process.

    Returns
    -------
    tuple[int, int]
        The process id, and a pipe that ends without a byte once the command runs, or else says
        why it does not.
    """
    reply, answer = os.pipe2(os.O_CLOEXEC)
    agent = os.getpid()
    # Until its signal handlers are reset a child would answer for the agent.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        pid = os.fork()
        if not pid:
            execute(argv, env, cwd, (*ends, answer, agent))
    except OSError:
        os.close(reply)
        raise
    finally:
        os.close(answer)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    os.set_blocking(reply, False)
    return pid, reply


def execute(
    argv: list[str], env: dict[str, str], cwd: str, ends: tuple[int, int, int, int]
) -> NoReturn:
    """Turn a fresh fork into a command, or say why not and exit."""
    stdin, stdout, answer, agent = ends
    stage = "cannot start a process"
    try:
        adopt(agent, stdin, stdout)
        stage = f"cannot enter {cwd}"
        os.chdir(encoded(cwd))
        stage = f"cannot run {argv[0]}"
        variables = {encoded(key): encoded(value) for key, value in env.items()}
        os.execvpe(encoded(argv[0]), [encoded(word) for word in argv], variables)  # noqa: S606 - no shell is wanted
    except (OSError, ValueError, IndexError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        os.write(answer, encoded(f"{stage}: {reason}")[:4096])
    finally:
        os._exit(127)


def adopt(agent: int, stdin: int, stdout: int) -> None:
    """Tie a fresh fork to the agent's life, and give it its own session, streams and signals."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != agent:
        os._exit(127)
    os.setsid()
    for target, source in enumerate((stdin, stdout, stdout)):
        os.dup2(source, target)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


class Process:
    """One worker, from the command that starts it until its exit is reported."""

    def __init__(self, command: dict[str, Any], log: Log, mark: int | None) -> None:
        self.command = command
        self.name: str = command["process"]
        self.log = log
        self.mark = mark
        self.pid = 0
        self.pidfd = -1
        self.warm = False
        self.asked = time.monotonic()
        self.deadline: float | None = None
        self.doomed = False
        self.shot = False
        self.cpu = 0.0
        self.memory = 0
        self.exit: dict[str, Any] | None = None

    @property
    def dying(self) -> bool:
        """Whether nothing of it may stay alive."""
        return self.doomed or self.exit is not None

    @property
    def exited_at(self) -> float:
        """The moment of its exit."""
        return float(self.exit["time"]) if self.exit else 0.0

    @property
    def environment(self) -> dict[str, str]:
        """The worker's whole environment, with the label that its descendants inherit."""
        return {**self.command["env"], LABEL: f"{os.getpid()}/{self.name}"}

    def signal(self, number: int) -> None:
        """Send a signal to the main process, if it is there."""
        if self.pidfd >= 0 and not self.exit:
            signal.pidfd_send_signal(self.pidfd, number)
            self.shot |= number == signal.SIGKILL

    def end(self, deadline: float, *, gently: bool) -> None:
        """Ask it to end, once, and let it be killed at a deadline, the earliest of all given."""
        if gently and self.deadline is None:
            self.signal(signal.SIGTERM)
        self.deadline = min(deadline, self.deadline or deadline)

    def used(self, cpu: float, memory: int) -> None:
        """Keep the most that it was seen to use, with all that it started."""
        self.cpu, self.memory = max(self.cpu, cpu), max(self.memory, memory)

    def report(self) -> dict[str, Any] | None:
        """Return the JSON object that the worker left about its exit."""
        path = self.command["report"]
        data = contents(path, CHUNK + 1) if path else None
        try:
            return parsed(data) if data and len(data) <= CHUNK else None
        except ValueError:
            return None


class Zygote:
    """A process that has imported what workers need, and forks them on request."""

    def __init__(self, command: dict[str, Any]) -> None:
        self.key: str = command["key"]
        self.began = time.monotonic()
        self.seconds: float | None = None
        self.error: str | None = None
        self.missing: list[str] | None = None
        self.socket, far = socket.socketpair()
        self.socket.settimeout(0)
        self.output = os.memfd_create("zygote")
        env = {**command["env"], "PYTHONUNBUFFERED": "1", LABEL: " " * LABEL_ROOM}
        with far:
            ends = (far.fileno(), self.output)
            self.pid, self.reply = spawn(command["argv"], env, command["cwd"], ends)
        self.pidfd = os.pidfd_open(self.pid)

    def hear(self) -> None:
        """Read what it says: a line of JSON, once, when its imports have ended."""
        try:
            said = parsed(self.socket.recv(CHUNK))
        except (OSError, ValueError):
            return  # it has said nothing before it died
        self.error, self.missing = said.get("error"), said.get("missing")
        if self.missing is not None:
            self.seconds = time.monotonic() - self.began

    def fork(self, process: Process) -> int | None:
        """Ask for a worker; return the pipe on which it will answer, or None if it cannot."""
        words = process.command["argv"]
        request = {"argv": words, "env": process.environment, "cwd": process.command["cwd"]}
        letter = os.memfd_create("request")
        reply, answer = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(reply, False)
        try:
            os.write(letter, json.dumps(request).encode("ascii"))
            socket.send_fds(self.socket, [b"f"], [letter, process.log.writer, answer])
        except OSError:
            os.close(reply)
            return None
        finally:
            os.close(letter)
            os.close(answer)
        return reply

    def last_words(self, status: int) -> str:
        """Return why it died, from what it said and printed."""
        code = os.waitstatus_to_exitcode(status)
        how = f"exited with code {code}" if code >= 0 else f"was killed by signal {-code}"
        size = os.fstat(self.output).st_size
        said = answer_in(self.reply) or os.pread(self.output, 2000, max(0, size - 2000))
        text = said.decode("utf-8", "replace").strip()
        return f"the warm process {how}: {self.error or text}".rstrip(": ")

    def close(self) -> None:
        """Close all that is open."""
        self.socket.close()
        for descriptor in (self.output, self.reply, self.pidfd):
            os.close(descriptor)


class Loop:
    """Calls back when descriptors are ready, in the order in which they became so.

    The kernel's ready list keeps that order, so exits are seen as they happened even if this
    process could not run meanwhile.
    """

    def __init__(self) -> None:
        self.epoll = select.epoll()
        self.callbacks: dict[int, Callable[[], None]] = {}

    def watch(
        self, descriptor: int, callback: Callable[[], None], events: int = select.EPOLLIN
    ) -> None:
        """Call back whenever a descriptor is ready for one of the events."""
        self.epoll.register(descriptor, events)
        self.callbacks[descriptor] = callback

    def unwatch(self, descriptor: int) -> None:
        """Stop watching a descriptor that is still open."""
        if self.callbacks.pop(descriptor, None):
            self.epoll.unregister(descriptor)

    def turn(self, pause: float) -> None:
        """Wait for what is ready, some seconds at most, and call back."""
        ready = [(one, self.callbacks.get(one)) for one, _ in self.epoll.poll(pause)]
        for descriptor, callback in ready:
            # An earlier callback may have closed it, and opened another with its number.
            if callback and callback is self.callbacks.get(descriptor):
                callback()


class Agent:
    """The loop: commands and exits come in, events go out."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        self.outlet = Outlet(STDOUT)
        self.interest = self.taken = 0
        self.ports = Ports()
        self.family = Family()
        self.oom = Oom()
        self.processes: dict[str, Process] = {}
        self.zygotes: dict[str, Zygote] = {}
        self.incoming = bytearray()
        self.closing: float | None = None
        self.parting: str | None = None
        self.patience = 0.0
        self.silence = self.sample = self.forwarded = self.last_exit = 0.0
        self.rescan, self.delay, self.clear = 0.0, RESCAN, 0
        self.heard = self.sampled = time.monotonic()
        self.left: dict[str | None, list[int]] = {}

    # The loop

    def run(self) -> None:
        """Serve until everything has ended."""
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        self.connect()
        try:
            while not self.finished():
                self.taken = 0
                self.loop.turn(self.pause())
                self.settle(time.monotonic())
                self.forward(time.monotonic())
                self.flush()
                if 0 < self.taken < SMALL:
                    time.sleep(GATHER)
        finally:
            self.family.kill(self.family.look())
        self.leave()

    def connect(self) -> None:
        """Listen to commands, the reader of the events, and signals."""
        try:
            self.loop.watch(STDIN, self.read)
        except PermissionError:
            sys.exit("the agent's standard input must be a pipe or a socket, its lifeline")
        with suppress(PermissionError):  # a file: it never blocks
            self.loop.watch(STDOUT, self.writable, 0)
        reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, lambda *_: None)
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        self.loop.watch(reader, lambda: self.signalled(reader))

    def signalled(self, reader: int) -> None:
        """Close on SIGTERM; when a child has died, look at once for what else there is to kill."""
        numbers = answer_in(reader)
        if signal.SIGTERM in numbers:
            self.parting = "which got SIGTERM"
            self.close(DRAIN)
        if signal.SIGCHLD in numbers:
            self.hurry()

    def pause(self) -> float:
        """Return the seconds to sleep if nothing happens."""
        now = time.monotonic()
        pending = any(not one.pid for one in self.processes.values())
        moments = [now + (1.0 if pending else TICK)]
        deadlines = (one.deadline for one in self.processes.values() if not one.doomed)
        moments += [moment for moment in deadlines if moment is not None]
        if self.silence > 0 and self.closing is None:
            moments.append(self.heard + self.silence)
        if self.sample > 0 and self.processes:
            moments.append(self.sampled + self.sample)
        if any(one.log.ready for one in self.processes.values()) and not self.interest:
            moments.append(self.forwarded + PACE)
        if self.purging:
            moments.append(self.rescan)
        return max(0.0, min(moments) - now)

    def settle(self, now: float) -> None:
        """Do what is due at a moment."""
        if self.silence > 0 and now - self.heard > self.silence:
            self.parting = "which had heard nothing for too long"
            self.close()
        self.expire(now)
        self.reap()
        self.purge(now)
        dead = [process for process in self.processes.values() if process.exit]
        for process in sorted(dead, key=lambda one: one.exited_at):
            if process.exited_at + DRAIN < now or self.drained(process):
                self.finish(process)
        if self.sample > 0 and self.processes and now >= self.sampled + self.sample:
            self.measure(now)

    def expire(self, now: float) -> None:
        """Doom the workers whose time is up, and a zygote that keeps one of its own waiting."""
        for process in self.processes.values():
            if not process.doomed and process.deadline is not None and now >= process.deadline:
                process.doomed = True
                self.hurry()
            limit = DRAIN if process.doomed else WARM
            zygote = self.zygotes.get(process.command["zygote"])
            if zygote and not process.pid and now > process.asked + limit:
                os.kill(zygote.pid, signal.SIGKILL)  # its workers then start cold

    def finished(self) -> bool:
        """Whether the agent may exit."""
        if self.closing is None:
            return False
        late = time.monotonic() > self.closing + CLOSE
        return late or not (self.processes or self.left)

    def close(self, patience: float = 0.0) -> None:
        """End everything, and then the agent, if need be after some seconds for its reader."""
        if self.closing is None:
            self.patience = patience
            self.closing = time.monotonic()
            self.hurry()
            self.left = {None: []}
            for process in self.processes.values():
                process.doomed = True

    def leave(self) -> None:
        """Give the reader a moment to take the last events."""
        deadline = time.monotonic() + self.patience
        while self.outlet.waiting and not self.outlet.broken and time.monotonic() < deadline:
            select.select([], [STDOUT], [], RESCAN)
            self.outlet.flush()

    # Events

    def emit(self, kind: str, **fields: object) -> None:
        """Queue an event."""
        self.outlet.put({"type": kind, **fields})

    def forward(self, now: float) -> None:
        """Queue log for which there is credit and room, each worker in its turn.

        Many small prints become one event: the first goes at once, what follows a moment later.
        """
        if now < self.forwarded + PACE:
            return
        while len(self.outlet.waiting) < QUEUE:
            process = next((one for one in self.processes.values() if one.log.ready), None)
            if process is None:
                return
            self.forwarded = now
            self.processes[process.name] = self.processes.pop(process.name)
            self.output(process, process.log.credit)

    def output(self, process: Process, limit: int) -> None:
        """Queue the next piece of a log."""
        offset, data = process.log.piece(limit)
        text = data.decode("utf-8", "surrogateescape")
        self.emit("output", process=process.name, offset=offset, data=text)

    def writable(self) -> None:
        """Note that the reader is gone, if there was nothing to write; else `flush` finds out."""
        self.outlet.broken |= not self.interest

    def flush(self) -> None:
        """Write events, and ask to be woken when the reader takes more."""
        self.outlet.flush()
        if self.outlet.broken:
            self.close()
        interest = select.EPOLLOUT if self.outlet.waiting and not self.outlet.broken else 0
        if interest != self.interest:
            self.loop.epoll.modify(STDOUT, interest)
            self.interest = interest

    # Commands

    def read(self) -> None:
        """Take commands from standard input, whose end is the end of everything."""
        try:
            data = os.read(STDIN, CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.loop.unwatch(STDIN)
            self.close()
        self.heard = time.monotonic()
        self.incoming += data
        if b"\n" in data:
            *lines, self.incoming = self.incoming.split(b"\n")
            for line in lines:
                self.obey(bytes(line))
        elif len(self.incoming) > LINE:
            self.incoming.clear()
            self.emit("refused", command=None, error=f"a command is longer than {LINE} bytes")

    def obey(self, line: bytes) -> None:
        """Do what a line says, or say why not."""
        command: dict[str, Any] = {}
        try:
            command = parsed(line)
            handler = checked(command)
            handler(self, command)
        except (ValueError, TypeError, OverflowError, OSError) as error:
            kind = command.get("type")
            known = {key: command[key] for key in ("process", "id", "key") if key in command}
            kind = kind if isinstance(kind, str) else None
            self.emit("refused", command=kind, error=str(error), **known)

    def hello(self, command: dict[str, Any]) -> None:
        """Agree on a version, and on when to give up."""
        if command["version"] != VERSION:
            self.close(DRAIN)
            raise ValueError(f"this agent speaks version {VERSION}, not {command['version']}")
        self.silence, self.sample = command["silence"], command["sample"]
        if command["parent"] is not None:
            self.watch_parent(command["parent"])
        python = ".".join(str(part) for part in sys.version_info[:3])
        own = {"pid": os.getpid(), "host": os.uname().nodename, "python": python}
        self.emit("hello", version=VERSION, **own, **clocks())

    def watch_parent(self, parent: int) -> None:
        """Close when a process dies: another may hold the other end of standard input open."""
        try:
            pidfd = os.pidfd_open(parent)
        except ProcessLookupError:
            self.close()
        else:
            self.loop.watch(pidfd, lambda: self.orphaned(pidfd))

    def orphaned(self, pidfd: int) -> None:
        """Close because the parent has died."""
        self.loop.unwatch(pidfd)
        os.close(pidfd)
        self.close()

    def hold(self, command: dict[str, Any]) -> None:
        """Hold ports."""
        self.emit("held", id=command["id"], ports=self.ports.hold(command["count"]))

    def release(self, command: dict[str, Any]) -> None:
        """Give ports back."""
        self.ports.release(command["ports"])

    def warm(self, command: dict[str, Any]) -> None:
        """Start a zygote, or say again that it is ready."""
        key = command["key"]
        strings(command)
        if key in self.zygotes:
            self.warmed(self.zygotes[key])
            return
        try:
            zygote = Zygote(command)
        except OSError as error:
            self.emit("cooled", key=key, error=str(error))
            return
        self.zygotes[key] = zygote
        self.family.zygotes.add(zygote.pid)
        self.loop.watch(zygote.socket.fileno(), lambda: self.heard_from(zygote))
        self.loop.watch(zygote.pidfd, lambda: self.cooled(zygote))

    def heard_from(self, zygote: Zygote) -> None:
        """Report that a zygote is ready; it says nothing else."""
        zygote.hear()
        self.loop.unwatch(zygote.socket.fileno())
        self.warmed(zygote)

    def warmed(self, zygote: Zygote) -> None:
        """Report a zygote that is ready."""
        if zygote.seconds is not None:
            fields = {"pid": zygote.pid, "seconds": zygote.seconds, "missing": zygote.missing}
            self.emit("warmed", key=zygote.key, **fields)

    def cooled(self, zygote: Zygote) -> None:
        """Report a zygote's death; its workers live on."""
        pid, status = os.waitpid(zygote.pid, os.WNOHANG)
        if not pid:
            return
        zygote.hear()
        if self.closing is None:
            self.emit("cooled", key=zygote.key, error=zygote.last_words(status))
        self.loop.unwatch(zygote.pidfd)
        self.loop.unwatch(zygote.socket.fileno())
        zygote.close()
        del self.zygotes[zygote.key]
        self.family.zygotes.discard(zygote.pid)

    def start(self, command: dict[str, Any]) -> None:
        """Start a worker."""
        name = command["process"]
        strings(command)
        if name in self.processes:
            raise ValueError(f"{name} is still alive")
        if self.closing is not None:
            raise ValueError(f"{PARTED}{self.parting}" if self.parting else "the agent is closing")
        try:
            log = Log(command["log"], command["credit"])
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            self.emit(
                "exited", **obituary(name, f"cannot write the log {command['log']}: {reason}")
            )
            return
        process = self.processes[name] = Process(command, log, self.oom.mark())
        self.launch(process, self.zygotes.get(command["zygote"]))

    def launch(self, process: Process, zygote: Zygote | None) -> None:
        """Fork a worker, from a zygote if there is one that is ready."""
        ready = zygote is not None and zygote.seconds is not None
        reply = zygote.fork(process) if zygote is not None and ready else None
        process.warm = reply is not None
        if reply is None:
            try:
                reply = self.spawn(process)
            except (OSError, ValueError) as error:
                self.failed(process, f"cannot start a process: {error}")
                return
        self.loop.watch(reply, lambda: self.answered(process, reply))

    def spawn(self, process: Process) -> int:
        """Start a worker from nothing."""
        ends = (self.null, process.log.writer)
        argv, cwd = process.command["argv"], process.command["cwd"]
        process.pid, reply = spawn(argv, process.environment, cwd, ends)
        self.family.mains[process.pid] = process.name
        return reply

    def answered(self, process: Process, reply: int) -> None:
        """Take a new worker's answer: its process id if it is warm, an error, or nothing."""
        answer = answer_in(reply)
        self.loop.unwatch(reply)
        os.close(reply)
        if process.warm and not answer:
            if process.doomed:
                early = "ended before it had started"
                self.failed(process, f"{PARTED}{self.parting}" if self.parting else early)
            else:
                self.launch(process, None)
        elif answer.isdigit():
            process.pid = int(answer)
            self.began(process)
        elif answer:
            self.failed(process, answer.decode("utf-8", "surrogateescape"))
        else:
            self.began(process)

    def began(self, process: Process) -> None:
        """Watch a worker that runs."""
        log = process.log
        log.launched()
        self.family.mains[process.pid] = process.name
        process.pidfd = os.pidfd_open(process.pid)
        self.loop.watch(process.pidfd, lambda: self.exited(process))
        self.loop.watch(log.reader, lambda: self.tee(log))
        fields = {"process": process.name, "pid": process.pid, "warm": process.warm}
        self.emit("started", **fields, **clocks())
        if process.deadline is not None and process.deadline > time.monotonic():
            process.signal(signal.SIGTERM)  # it was asked to end before it had begun

    def tee(self, log: Log) -> None:
        """Move output to the log file."""
        self.taken = max(self.taken, log.tee())
        if log.ended:
            self.loop.unwatch(log.reader)

    def failed(self, process: Process, error: str) -> None:
        """Report a worker that could not be started."""
        self.family.mains.pop(process.pid, None)
        process.log.close()
        del self.processes[process.name]
        self.emit("exited", **obituary(process.name, error))

    def end(self, command: dict[str, Any]) -> None:
        """End one worker or all."""
        name, grace = command["process"], command["grace"]
        deadline = time.monotonic() + grace
        for process in self.processes.values():
            if name in (None, process.name):
                process.end(deadline, gently=grace > 0)

    def signal(self, command: dict[str, Any]) -> None:
        """Send a signal to a worker's main process, if it is still there."""
        process = self.processes.get(command["process"])
        if process:
            process.signal(command["signal"])

    def credit(self, command: dict[str, Any]) -> None:
        """Let more of a log be forwarded."""
        process = self.processes.get(command["process"])
        if process:
            process.log.credit += command["bytes"]

    def shut(self, _: dict[str, Any]) -> None:
        """End everything, and then the agent."""
        self.close(DRAIN)

    def ping(self, command: dict[str, Any]) -> None:
        """Answer."""
        self.emit("pong", n=command["n"], time=time.monotonic())

    # Exits

    def exited(self, process: Process) -> None:
        """Take note of a worker's exit; it is reported when its log is complete."""
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if not pid:
            return
        self.loop.unwatch(process.pidfd)
        os.close(process.pidfd)
        code = os.waitstatus_to_exitcode(status)
        moment = clocks()
        # Exits seen at once keep their order in their times too.
        moment["time"] = self.last_exit = max(moment["time"], self.last_exit + 1e-6)
        known = self.oom.mark() is not None or code != -signal.SIGKILL
        oom: bool | None = False if known else None
        if code == -signal.SIGKILL and not (process.shot or process.doomed):
            oom = self.oom.claim(process.mark)
        how = {"code": code if code >= 0 else None, "signal": -code if code < 0 else None}
        process.exit = {**moment, **how, "oom": oom}
        process.used(usage.ru_utime + usage.ru_stime, usage.ru_maxrss << 10)
        self.hurry()

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
        return dying or bool(self.left) or self.closing is not None

    def purge(self, now: float) -> None:
        """Kill the descendants of workers that have ended or are to end."""
        if now < self.rescan or not self.purging:
            return
        rows = [row for row in self.family.look() if self.lost(row)]
        self.family.kill(row for row in rows if row.owner != UNKNOWN)
        self.left = {}
        for row in rows:  # the dead count too: what they forked last may be too new to be seen
            self.left.setdefault(row.owner, []).append(row.pid)
        # One look may miss who forks and ends while it lasts.
        self.clear = 0 if self.left else self.clear + 1
        self.rescan = now + self.delay
        self.delay = min(2 * self.delay, RESCANS)

    def lost(self, row: Row) -> bool:
        """Whether a descendant may not live on; one whose worker's end was told is too late."""
        if self.closing is not None or row.owner == UNKNOWN:
            return True
        if row.owner is None:
            return False
        process = self.processes.get(row.owner)
        return process is None or process.dying

    def hurry(self) -> None:
        """Look at once for descendants that are to die, and often again."""
        self.rescan, self.delay, self.clear = 0.0, RESCAN, 0

    def drained(self, process: Process) -> bool:
        """Whether nothing of a dead worker is left to wait for."""
        if not process.log.ended:
            self.tee(process.log)
        left = self.left.keys() & {process.name, UNKNOWN}
        return process.log.ended and not left and self.clear != 1

    def finish(self, process: Process) -> None:
        """Report an exit, after the end of the log whatever its credit."""
        log = process.log
        held = not log.ended
        if held:
            self.loop.unwatch(log.reader)
        while log.ready and len(self.outlet.waiting) < BACKLOG:
            self.output(process, log.credit)
        if log.sent < log.size:
            log.sent = max(log.sent, log.size - CHUNK)
            self.output(process, CHUNK)
        usage = {"cpu": process.cpu, "memory": process.memory}
        left = self.left.get(process.name, []) + self.left.get(UNKNOWN, [])
        own = {"pid": process.pid, "size": log.size, "report": process.report(), "usage": usage}
        error = log.error or (remains(left) if held or left else None)
        how = dict(process.exit or {})
        if self.parting and how.get("signal") == signal.SIGKILL:
            error = f"{PARTED}{self.parting}"
            how |= {"code": None, "signal": None}
        self.emit("exited", **{**obituary(process.name, error), **own, **how})
        log.close()
        del self.processes[process.name]
        del self.family.mains[process.pid]

    def measure(self, now: float) -> None:
        """Report what every worker uses, with all that it started."""
        self.sampled = now
        processes: dict[str, dict[str, Any]] = {}
        for row in (row for row in self.family.look() if row.alive):
            process = self.processes.get(row.owner or "")
            if process:
                total = processes.setdefault(process.name, dict(NOTHING))
                total["cpu"] += row.cpu
                total["memory"] += row.memory
                total["processes"] += 1
                total["state"] = row.state if row.pid == process.pid else total["state"]
        for name, total in processes.items():
            self.processes[name].used(total["cpu"], total["memory"])
        if processes and len(self.outlet.waiting) < QUEUE:
            self.emit("usage", time=now, processes=processes)


NOTHING: dict[str, Any] = {"cpu": 0.0, "memory": 0, "state": "?", "processes": 0}

COMMANDS: dict[str, tuple[Callable[[Agent, dict[str, Any]], None], dict[str, Any]]] = {
    "hello": (
        Agent.hello,
        {"version": int, "parent": MAYBE_INT, "silence": NUMBER, "sample": NUMBER},
    ),
    "hold": (Agent.hold, {"id": int, "count": int}),
    "release": (Agent.release, {"ports": list}),
    "warm": (Agent.warm, {"key": str, "argv": list, "env": dict, "cwd": str}),
    "start": (
        Agent.start,
        {
            "process": str,
            "argv": list,
            "env": dict,
            "cwd": str,
            "log": str,
            "report": MAYBE_STR,
            "zygote": MAYBE_STR,
            "credit": int,
        },
    ),
    "end": (Agent.end, {"process": MAYBE_STR, "grace": NUMBER}),
    "signal": (Agent.signal, {"process": str, "signal": int}),
    "credit": (Agent.credit, {"process": str, "bytes": int}),
    "ping": (Agent.ping, {"n": int}),
    "close": (Agent.shut, {}),
}


def checked(command: dict[str, Any]) -> Callable[[Agent, dict[str, Any]], None]:
    """Return what does a command, or raise ValueError if it is not one."""
    kind = command.get("type")
    if not isinstance(kind, str) or kind not in COMMANDS:
        raise ValueError(f"unknown command {kind!r}; known are {', '.join(COMMANDS)}")
    handler, fields = COMMANDS[kind]
    for name, types in fields.items():
        if name not in command:
            raise ValueError(f"{kind} lacks {name!r}")
        if not isinstance(command[name], types):
            raise ValueError(f"{kind} has {name} = {command[name]!r}"[:200])  # noqa: TRY004 - one error for all bad lines
    return handler


def strings(command: dict[str, Any]) -> None:
    """Raise ValueError unless a command's argv and env can be a process's."""
    argv, env = command["argv"], command["env"]
    if not argv or not all(isinstance(word, str) for word in [*argv, *env.values()]):
        raise ValueError("argv and env hold strings, and argv at least one")


def clocks() -> dict[str, float]:
    """Return the moment on both clocks."""
    return {"time": time.monotonic(), "wall": time.time()}


def obituary(process: str, error: str | None) -> dict[str, Any]:
    """Return what is told of a worker that never ran."""
    unknown = dict.fromkeys(("pid", "code", "signal", "report", "oom"))
    usage = {"cpu": 0.0, "memory": 0}
    return {"process": process, **unknown, **clocks(), "size": 0, "usage": usage, "error": error}


def remains(pids: list[int] | None) -> str:
    """Return the sentence about what could not be killed."""
    who = f"processes {pids}" if pids else "an unknown process"
    return f"{who} could not be ended and may still write to the log"


def answer_in(descriptor: int) -> bytes:
    """Return what is in a pipe now."""
    try:
        return os.read(descriptor, CHUNK)
    except BlockingIOError:
        return b""


if __name__ == "__main__":
    Agent().run()
