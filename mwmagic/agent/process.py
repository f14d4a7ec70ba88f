"""One worker, as the agent knows it: its process, its line, its log, and what passes both on."""

from __future__ import annotations

import os
import signal
import socket
import time
from contextlib import suppress

from .family import Row
from .system import contents
from .wire import (
    CHUNK_BYTES,
    LABEL,
    LINE,
    PACKET_BYTES,
    REST_BYTES,
    SCRATCH,
    as_bytes,
    as_text,
    parsed,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .system import EventWriter, Loop


class Process:
    """One worker, from the command that starts it until its exit is reported."""

    def __init__(self, command: dict[str, Any], log: Log, mark: int | None, tag: int) -> None:
        self.command = command
        self.name: str = command["process"]
        self.log = log
        self.line = LinePair()
        self.mark = mark
        self.tag = tag
        self.pid = 0
        self.pidfd = -1
        self.warm = False
        self.cold: dict[str, Any] | None = None
        self.scratch = scratch_of(command["env"])
        self.asked = time.monotonic()
        self.deadline: float | None = None
        self.kill_requested = False
        self.kill_sent = False
        self.cpu = 0.0
        self.memory = 0
        self.state = ""
        self.exit: dict[str, Any] | None = None

    @property
    def dying(self) -> bool:
        """Whether none of its processes may stay alive."""
        return self.kill_requested or self.exit is not None

    @property
    def exited_at(self) -> float:
        """The time of its exit."""
        return float(self.exit["time"]) if self.exit else 0.0

    @property
    def environment(self) -> dict[str, str]:
        """The worker's whole environment, with the label that its descendants inherit."""
        own = {LABEL: f"{os.getpid()}/{self.name}", LINE: str(self.line.far.fileno())}
        own[SCRATCH] = self.scratch
        return {**self.command["env"], **own}

    def signal(self, number: int) -> None:
        """Send a signal to the main process, if it exists."""
        if self.pidfd >= 0 and not self.exit:
            signal.pidfd_send_signal(self.pidfd, number)
            self.kill_sent |= number == signal.SIGKILL

    def end(self, deadline: float, *, gently: bool) -> None:
        """Ask it to end, once, and have it killed at the earliest of all given deadlines."""
        if self.deadline is None:
            stat = contents(f"/proc/{self.pid}/stat") if self.pid else None
            self.state = Row(self.pid, stat).state if stat else ""
            if gently:
                self.signal(signal.SIGTERM)
        self.deadline = min(deadline, self.deadline or deadline)

    def used(self, cpu: float, memory: int) -> None:
        """Keep the maximum that it was seen to use, including its descendants."""
        self.cpu, self.memory = max(self.cpu, cpu), max(self.memory, memory)

    def report(self) -> dict[str, Any] | None:
        """Return the JSON object in which the worker reported why it exits."""
        path = self.command["report"]
        data = contents(path, CHUNK_BYTES + 1) if path else None
        try:
            return parsed(data) if data and len(data) <= CHUNK_BYTES else None
        except ValueError:
            return None

    def launched(self) -> None:
        """Leave the worker's ends of its log and its line to it."""
        self.log.launched()
        self.line.far.close()

    def close(self) -> None:
        """Close all that is open, and remove its temporary files."""
        self.log.close()
        self.line.close()
        if os.path.lexists(self.scratch):
            import shutil  # which takes a while to import

            shutil.rmtree(self.scratch, ignore_errors=True)


def scratch_of(env: dict[str, str]) -> str:
    """Return a folder for a worker's temporary files, whose name nobody else can know before."""
    return f"{env.get('TMPDIR') or '/tmp'}/mwmagic-{os.urandom(8).hex()}"  # noqa: S108 - where Python has them


CREDENTIALS_BYTES = socket.CMSG_SPACE(12)


class LinePair:
    """A pair of connected sockets that preserve the boundaries of packets.

    A packet that is not read stays in the socket. The kernel thus applies backpressure to a worker
    that sends too much, and the agent's memory does not grow.
    """

    def __init__(self) -> None:
        self.near, self.far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.near.setblocking(False)  # noqa: FBT003 - it has no keywords
        # The kernel then adds the sender to each packet, so an empty packet differs from the end.
        self.near.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self.ended = False
        self.dropped = 0

    def read_packet(self) -> bytes | None:
        """Return the next packet, empty if it must not be forwarded, or None if there is none."""
        try:
            data, sender, flags, _ = self.near.recvmsg(PACKET_BYTES, CREDENTIALS_BYTES)
        except BlockingIOError:
            return None
        except ConnectionResetError:  # raised once, if the worker left packets of ours unread
            return self.read_packet()
        if not sender:
            self.ended = True
            return None
        if flags & socket.MSG_TRUNC:
            self.dropped += 1
            return b""
        return data

    def send(self, data: bytes) -> None:
        """Send the worker a packet; raise OSError if it does not accept any."""
        self.near.send(data, socket.MSG_NOSIGNAL)

    def close(self) -> None:
        """Close both ends."""
        self.near.close()
        self.far.close()


LAG_BYTES = 4 << 20
"""How far a reader may fall behind before the log skips ahead."""


class Log:
    """One worker's output: a pipe whose bytes go to a file at once, and to a reader by credit.

    Nothing is buffered in memory: what is forwarded is read back from the file. Once that cannot be
    written, as on a full disk, it is never written again, so that it is the output's beginning. The
    rest is in a file in memory, at the same offsets; others open it as a file of this process.
    """

    def __init__(self, path: str, credit: int) -> None:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOCTTY
        name = as_bytes(path)
        folder = os.path.dirname(name) or b"."  # noqa: PTH120 - pathlib costs a third of the start-up
        with suppress(FileExistsError):
            os.mkdir(folder, 0o700)  # noqa: PTH102 - the same
        self.file = os.open(name, flags, 0o600)
        self.size = self.sent = os.fstat(self.file).st_size
        self.written = self.size
        self.rest = -1
        self.credit = credit
        self.error: str | None = None
        self.errno: int | None = None
        self.ended = False
        self.reader, self.writer = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.reader, False)

    @property
    def ready(self) -> bool:
        """Whether there is output to forward, and credit for it."""
        return self.size > self.sent and self.credit > 0

    def tee(self) -> int:
        """Move the contents of the pipe to the file, and return the number of bytes."""
        try:
            data = os.read(self.reader, CHUNK_BYTES)
        except BlockingIOError:
            return 0
        taken = len(data)
        self.ended = not data
        try:
            while data and self.rest < 0:
                count = os.write(self.file, data)
                data = data[count:]
                self.size += count
        except OSError as error:
            self.rest = os.memfd_create("mwmagic-log")
            self.written = self.size
            self.error = f"the log ends after {self.written:,} bytes: {error.strerror}"
            self.errno = error.errno
        if data:
            self.hold(data)
        return taken

    def hold(self, data: bytes) -> None:
        """Keep output in memory that the file cannot take, as much as there may be of it."""
        left = self.written + REST_BYTES - self.size
        if len(data) > left:
            self.error = (
                f"the log ends after {self.written:,} bytes; {REST_BYTES:,} more were shown"
            )
        self.size += os.pwrite(self.rest, data[: max(0, left)], self.size)

    def launched(self) -> None:
        """Leave the pipe's other end to the worker."""
        os.close(self.writer)
        self.writer = -1

    def piece(self, limit: int) -> tuple[int, bytes]:
        """Return the offset and the bytes to forward next, at most `limit`."""
        if self.size - self.sent > LAG_BYTES:
            self.sent = self.size - CHUNK_BYTES
        offset = self.sent
        data = b""
        with suppress(OSError):  # a file system that cannot be read must not end the training
            source = self.file if self.rest < 0 or offset < self.written else self.rest
            data = os.pread(source, min(limit, CHUNK_BYTES), offset)
        self.sent = offset + len(data) if data else self.size  # the file may have been truncated
        self.credit -= len(data)
        return offset, data

    def close(self) -> None:
        """Close all that is open, except the rest."""
        for descriptor in (self.file, self.reader, self.writer):
            if descriptor >= 0:
                os.close(descriptor)


BACKLOG_BYTES = 8 << 20
"""While this much waits on standard output, the rest of an exited worker's log is dropped."""

PACE_SECONDS = 0.002
"""The interval between two rounds of output events."""

TURN_PACKETS = 64
"""How many packets of one worker are forwarded before the others have their turn."""

LAST_PACKETS = 1024
"""How many are forwarded once it has exited: more than a socket holds."""


class Relay:
    """Moves output to the log files and to the reader, and packets from the lines to the reader.

    `taken` counts the bytes of output that the busiest worker produced in this turn.
    """

    def __init__(self, loop: Loop, events: EventWriter, processes: dict[str, Process]) -> None:
        self.loop = loop
        self.events = events
        self.processes = processes
        self.muted: list[Process] = []
        self.taken = 0
        self.forwarded = 0.0

    def watch(self, process: Process) -> None:
        """Start to watch a worker's output and line."""
        self.loop.watch(process.log.reader, lambda: self.tee(process))
        self.listen_to(process)

    def listen_to(self, process: Process) -> None:
        """Receive a worker's packets from now on."""
        self.loop.watch(process.line.near.fileno(), lambda: self.listen(process))

    def tee(self, process: Process) -> None:
        """Move a worker's output to its log file."""
        log, before = process.log, process.log.rest
        self.taken = max(self.taken, log.tee())
        if log.rest != before:
            path = f"/proc/{os.getpid()}/fd/{log.rest}"
            fields = {
                "process": process.name,
                "size": log.written,
                "path": path,
                "error": log.error,
            }
            self.events.emit("unwritten", **fields)
        if log.ended:
            self.loop.unwatch(log.reader)

    def forward(self, now: float) -> None:
        """Queue output for which there is credit and room, from the workers in turn.

        Many small prints become one event: the first is sent at once, the others a little later.
        """
        if now < self.forwarded + PACE_SECONDS:
            return
        while not self.events.full:
            process = next((one for one in self.processes.values() if one.log.ready), None)
            if process is None:
                return
            self.forwarded = now
            self.processes[process.name] = self.processes.pop(process.name)
            self.output(process, process.log.credit)

    def output(self, process: Process, limit: int) -> None:
        """Queue the next piece of a log."""
        offset, data = process.log.piece(limit)
        self.events.emit("output", process=process.name, offset=offset, data=as_text(data))

    def listen(self, process: Process) -> None:
        """Forward a worker's packets; those for which there is no room stay in the socket."""
        for _ in range(TURN_PACKETS):
            if self.events.full:
                self.loop.unwatch(process.line.near.fileno())
                self.muted.append(process)
                return
            if not self.forward_packet(process):
                return

    def unmute(self) -> None:
        """Listen again to the workers for whose packets there was no room."""
        if self.muted and not self.events.full:
            muted, self.muted = self.muted, []
            for process in muted:
                self.listen_to(process)

    def forward_packet(self, process: Process) -> bool:
        """Forward one packet from a worker's line, and return whether there was one."""
        packet = process.line.read_packet()
        if process.line.ended:
            self.loop.unwatch(process.line.near.fileno())
        if not packet:
            return packet is not None
        if not process.log.ended:
            self.tee(process)  # so that it holds everything printed before the packet
        fields = {"size": process.log.size, "data": as_text(packet)}
        self.events.emit("packet", process=process.name, time=time.monotonic(), **fields)
        return True

    def hang_up(self, process: Process) -> None:
        """Forward what is left in a dead worker's line, and stop listening to it."""
        for _ in range(LAST_PACKETS):
            if not self.forward_packet(process):
                break
        self.loop.unwatch(process.line.near.fileno())
        if process in self.muted:
            self.muted.remove(process)
        self.loop.unwatch(process.log.reader)

    def rest(self, process: Process) -> None:
        """Queue the rest of a dead worker's log, or only its end if that is too much."""
        log = process.log
        while log.ready and len(self.events.waiting) < BACKLOG_BYTES:
            self.output(process, log.credit)
        if log.sent < log.size:
            log.sent = max(log.sent, log.size - CHUNK_BYTES)
            self.output(process, CHUNK_BYTES)

    def moments(self, now: float) -> list[float]:
        """Return when something is due if nothing happens and the reader takes more."""
        ready = any(one.log.ready for one in self.processes.values())
        return [max(now, self.forwarded + PACE_SECONDS)] if ready else []
