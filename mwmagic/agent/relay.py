"""Passes on what workers print and send."""

from __future__ import annotations

import time

from .wire import CHUNK_BYTES, as_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .log import Log
    from .loop import Loop
    from .outlet import Outlet
    from .process import Process

BACKLOG_BYTES = 8 << 20
"""Waiting on standard output above which the rest of a log is dropped when its worker exits."""

PACE_SECONDS = 0.002
"""Between two rounds of output events."""

TURN_PACKETS = 64
"""Of one worker's line that are passed on before others have their turn."""

LAST_PACKETS = 1024
"""The same once it has exited: more than a socket holds, unless something still writes to it."""


class Relay:
    """Moves output to the log files and on to the reader, with the packets of the lines.

    Attributes
    ----------
    taken : int
        Bytes of output that the busiest worker's log took in this turn.
    """

    def __init__(self, loop: Loop, outlet: Outlet, processes: dict[str, Process]) -> None:
        self.loop = loop
        self.outlet = outlet
        self.processes = processes
        self.muted: list[Process] = []
        self.taken = 0
        self.forwarded = 0.0

    def watch(self, process: Process) -> None:
        """Begin to listen to a worker."""
        self.loop.watch(process.log.reader, lambda: self.tee(process.log))
        self.listen_to(process)

    def listen_to(self, process: Process) -> None:
        """Hear what a worker says on its line from now on."""
        self.loop.watch(process.line.near.fileno(), lambda: self.listen(process))

    def tee(self, log: Log) -> None:
        """Move output to the log file."""
        self.taken = max(self.taken, log.tee())
        if log.ended:
            self.loop.unwatch(log.reader)

    def forward(self, now: float) -> None:
        """Queue log for which there is credit and room, each worker in its turn.

        Many small prints become one event: the first goes at once, what follows a moment later.
        """
        if now < self.forwarded + PACE_SECONDS:
            return
        while not self.outlet.full:
            process = next((one for one in self.processes.values() if one.log.ready), None)
            if process is None:
                return
            self.forwarded = now
            self.processes[process.name] = self.processes.pop(process.name)
            self.output(process, process.log.credit)

    def output(self, process: Process, limit: int) -> None:
        """Queue the next piece of a log."""
        offset, data = process.log.piece(limit)
        self.outlet.emit("output", process=process.name, offset=offset, data=as_text(data))

    def listen(self, process: Process) -> None:
        """Pass on what a worker says on its line; what has no room now stays in the socket."""
        for _ in range(TURN_PACKETS):
            if self.outlet.full:
                self.loop.unwatch(process.line.near.fileno())
                self.muted.append(process)
                return
            if not self.said(process):
                return

    def unmute(self) -> None:
        """Listen again to the workers for whose words there was no room."""
        if self.muted and not self.outlet.full:
            muted, self.muted = self.muted, []
            for process in muted:
                self.listen_to(process)

    def said(self, process: Process) -> bool:
        """Pass on one packet of a worker's line, and return whether there was one."""
        packet = process.line.take()
        if process.line.ended:
            self.loop.unwatch(process.line.near.fileno())
        if not packet:
            return packet is not None
        if not process.log.ended:
            self.tee(process.log)  # which then holds all that was printed before
        fields = {"size": process.log.size, "data": as_text(packet)}
        self.outlet.emit("said", process=process.name, time=time.monotonic(), **fields)
        return True

    def hang_up(self, process: Process) -> None:
        """Pass on what is left in a dead worker's line, and listen to it no more."""
        for _ in range(LAST_PACKETS):
            if not self.said(process):
                break
        self.loop.unwatch(process.line.near.fileno())
        if process in self.muted:
            self.muted.remove(process)
        self.loop.unwatch(process.log.reader)

    def rest(self, process: Process) -> None:
        """Queue what is left of a dead worker's log, or its end if that is too much."""
        log = process.log
        while log.ready and len(self.outlet.waiting) < BACKLOG_BYTES:
            self.output(process, log.credit)
        if log.sent < log.size:
            log.sent = max(log.sent, log.size - CHUNK_BYTES)
            self.output(process, CHUNK_BYTES)

    def moments(self, now: float) -> list[float]:
        """Return when something is due if nothing happens, and the reader takes more."""
        ready = any(one.log.ready for one in self.processes.values())
        return [max(now, self.forwarded + PACE_SECONDS)] if ready else []
