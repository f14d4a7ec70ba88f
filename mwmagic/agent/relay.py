"""Forwards what workers print and send."""

from __future__ import annotations

import os
import time

from .wire import CHUNK_BYTES, as_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .loop import Loop
    from .outlet import Outlet
    from .process import Process

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

    Attributes
    ----------
    taken : int
        Bytes of output that the busiest worker produced in this turn.
    """

    def __init__(self, loop: Loop, outlet: Outlet, processes: dict[str, Process]) -> None:
        self.loop = loop
        self.outlet = outlet
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
            fields = {"process": process.name, "size": log.kept, "path": path, "error": log.error}
            self.outlet.emit("unwritten", **fields)
        if log.ended:
            self.loop.unwatch(log.reader)

    def forward(self, now: float) -> None:
        """Queue output for which there is credit and room, from the workers in turn.

        Many small prints become one event: the first is sent at once, the others a little later.
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
        """Forward a worker's packets; those for which there is no room stay in the socket."""
        for _ in range(TURN_PACKETS):
            if self.outlet.full:
                self.loop.unwatch(process.line.near.fileno())
                self.muted.append(process)
                return
            if not self.said(process):
                return

    def unmute(self) -> None:
        """Listen again to the workers for whose packets there was no room."""
        if self.muted and not self.outlet.full:
            muted, self.muted = self.muted, []
            for process in muted:
                self.listen_to(process)

    def said(self, process: Process) -> bool:
        """Forward one packet from a worker's line, and return whether there was one."""
        packet = process.line.take()
        if process.line.ended:
            self.loop.unwatch(process.line.near.fileno())
        if not packet:
            return packet is not None
        if not process.log.ended:
            self.tee(process)  # so that it holds everything printed before the packet
        fields = {"size": process.log.size, "data": as_text(packet)}
        self.outlet.emit("said", process=process.name, time=time.monotonic(), **fields)
        return True

    def hang_up(self, process: Process) -> None:
        """Forward what is left in a dead worker's line, and stop listening to it."""
        for _ in range(LAST_PACKETS):
            if not self.said(process):
                break
        self.loop.unwatch(process.line.near.fileno())
        if process in self.muted:
            self.muted.remove(process)
        self.loop.unwatch(process.log.reader)

    def rest(self, process: Process) -> None:
        """Queue the rest of a dead worker's log, or only its end if that is too much."""
        log = process.log
        while log.ready and len(self.outlet.waiting) < BACKLOG_BYTES:
            self.output(process, log.credit)
        if log.sent < log.size:
            log.sent = max(log.sent, log.size - CHUNK_BYTES)
            self.output(process, CHUNK_BYTES)

    def moments(self, now: float) -> list[float]:
        """Return when something is due if nothing happens and the reader takes more."""
        ready = any(one.log.ready for one in self.processes.values())
        return [max(now, self.forwarded + PACE_SECONDS)] if ready else []
