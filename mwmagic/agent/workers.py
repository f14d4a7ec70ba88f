"""Starts workers, forwards their output, ends them and reports their exits."""

from __future__ import annotations

import os
import resource
import signal
import time

from .family import HUNT_SECONDS, Reaper
from .machine import Oom, transferred, usage
from .process import Log, Process, Relay
from .system import (
    catches,
    clocks,
    has_open,
    number_of,
    reason_of,
    spawn,
    waiting_in,
    waits_for_signals,
)
from .wire import (
    COLD_MODULE,
    COLD_STOPPED,
    LOG_LOST,
    NOT_STARTED,
    REMAINS,
    REST_SECONDS,
    as_text,
    parsed,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .family import Closing, Family
    from .fork_server.zygotes import Zygote, Zygotes
    from .machine import Looks
    from .system import EventWriter, Loop

DRAIN_SECONDS = 2.0
"""How long to wait, after an exit, for an unknown process that still has the log open."""

FORK_SECONDS = 10.0
"""How long a zygote may take to fork a worker."""

FORK_CHECK_SECONDS = 0.25
"""The interval between checks of a zygote that is to fork a worker."""

UNEVEN_SECONDS = 0.2
"""How far the intervals between two looks at the workers may differ.

One that is stopped for 0.1 s, five times a second, would otherwise look running each second.
"""

SPARE_DESCRIPTORS = 24
"""File descriptors reserved for starting a worker and concurrent lookups."""

UNUSED: dict[str, Any] = {
    "cpu": 0.0,
    "memory": 0,
    "state": "?",
    "processes": 0,
    "read": 0,
    "written": 0,
}


class Workers:
    """The workers, from the commands that start them until their exits are reported."""

    def __init__(
        self,
        loop: Loop,
        events: EventWriter,
        family: Family,
        zygotes: Zygotes,
        closing: Closing,
        *,
        looks: Looks,
    ) -> None:
        self.loop = loop
        self.events = events
        self.family = family
        self.zygotes = zygotes
        self.closing = closing
        self.looks = looks
        self.processes: dict[str, Process] = {}
        self.reaper = Reaper(family, self.processes, closing)
        self.relay = Relay(loop, events, self.processes)
        self.oom = Oom()
        self.null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        self.held: list[dict[str, Any]] = []
        self.rests: list[tuple[float, int]] = []
        self.last_exit = 0.0
        self.sampled = time.monotonic()

    # Starting

    def start(self, command: dict[str, Any]) -> None:
        """Start a worker."""
        name = command["process"]
        if name in self.processes:
            raise ValueError(f"{name} is still alive")
        self.close_rests(time.monotonic())
        left = descriptors_left()
        if left < SPARE_DESCRIPTORS:
            text = f"too many open files: the agent has {left} descriptors left (see ulimit -n)"
            self.events.emit("exited", **no_exit(name, reason=NOT_STARTED, error=text))
            return
        try:
            log = Log(command["log"], command["credit"])
        except (OSError, ValueError) as error:
            text = f"cannot write the log {command['log']}: {reason_of(error)}"
            why = {"error": text, "errno": number_of(error)}
            self.events.emit("exited", **no_exit(name, reason=NOT_STARTED, **why))
            return
        process = Process(command, log, self.oom.mark(), self.family.tag(name))
        self.processes[name] = process
        self.launch(process, self.zygotes.get(command["zygote"]))

    def launch(self, process: Process, zygote: Zygote | None) -> None:
        """Fork a worker, from a zygote if one is ready."""
        ready = zygote if zygote is not None and zygote.ready else None
        if ready is not None and ready.end_stopped():
            ready, process.cold = None, {"why": COLD_STOPPED, "what": ""}
        process.warm = ready is not None
        try:
            reply = ready.fork(process) if ready is not None else self.spawn(process)
        except (OSError, ValueError) as error:
            text = f"cannot start a process: {error}"
            self.failed(process, reason=NOT_STARTED, error=text, errno=number_of(error))
            return
        self.loop.watch(reply, lambda: self.answered(process, reply))

    def spawn(self, process: Process) -> int:
        """Start a worker without a zygote."""
        ends = (self.null, process.log.writer)
        argv, cwd = process.command["argv"], process.command["cwd"]
        inherited = process.line.far.fileno(), process.tag, process.command["attributes"]
        process.pid, reply = spawn(argv, process.environment, cwd, ends, inherited)
        self.family.mains[process.pid] = process.name
        return reply

    def answered(self, process: Process, reply: int) -> None:
        """Handle a new worker's answer: its process id if it is warm, an error, or nothing."""
        answer = waiting_in(reply)
        self.loop.unwatch(reply)
        os.close(reply)
        if process.warm and answer.startswith(b"{"):
            process.cold = parsed(answer)
            if process.cold["why"] != COLD_MODULE:
                self.zygotes.spoil(process.command["zygote"])
            answer = b""
        if process.warm and not answer:
            if process.kill_requested:
                self.failed(process, **self.closing.early)
            else:
                self.launch(process, None)
        elif answer.isdigit():
            process.pid = int(answer)
            self.began(process)
        elif answer:
            self.failed(process, reason=NOT_STARTED, error=as_text(answer))
        else:
            self.began(process)

    def began(self, process: Process) -> None:
        """Watch a worker that is running."""
        process.launched()
        self.family.mains[process.pid] = process.name
        try:
            process.pidfd = os.pidfd_open(process.pid)
        except OSError as error:  # it would run unwatched
            os.kill(process.pid, signal.SIGKILL)
            os.waitpid(process.pid, 0)
            text = f"cannot watch its process: {reason_of(error)}"
            self.failed(process, reason=NOT_STARTED, error=text, errno=error.errno)
            return
        self.loop.watch(process.pidfd, lambda: self.exited(process))
        self.relay.watch(process)
        fields = {"process": process.name, "pid": process.pid, "warm": process.warm}
        fields["cold"] = process.cold
        self.events.emit("started", **fields, **clocks())
        if process.deadline is not None and process.deadline > time.monotonic():
            process.signal(signal.SIGTERM)  # it was asked to end before it had started

    def failed(self, process: Process, **why: Any) -> None:  # noqa: ANN401 - JSON values
        """Report a worker that could not be started."""
        self.forget(process)
        self.events.emit("exited", **no_exit(process.name, **why))

    def forget(self, process: Process) -> None:
        """Close what is open for a worker that is gone, but the rest of its log only later."""
        process.close()
        if process.log.rest >= 0:
            self.rests.append((time.monotonic(), process.log.rest))
        del self.processes[process.name]
        self.family.mains.pop(process.pid, None)

    def close_rests(self, now: float) -> None:
        """Close what could not be written of logs, once it was readable for long enough."""
        while self.rests and self.rests[0][0] < now - REST_SECONDS:
            os.close(self.rests.pop(0)[1])

    # While they are alive

    def send(self, name: str, packet: bytes) -> None:
        """Send a worker a packet, if it still exists; raise OSError if it does not accept any."""
        process = self.processes.get(name)
        if process:
            process.line.send(packet)

    def signal(self, command: dict[str, Any]) -> None:
        """Send a signal to a worker's main process, if it still exists."""
        process = self.processes.get(command["process"])
        if process:
            process.signal(command["signal"])

    def ask(self, command: dict[str, Any]) -> None:
        """Send a worker a signal if it is still there and its handler is known to be the right one.

        A handler lives as long as the program, and so does the file that it writes to. The file is
        closed before another handler takes its place. A worker that waits for a signal is left
        alone: this one would end its wait.
        """
        process = self.processes.get(command["process"])
        if process and process.pid and not process.exit:
            number, file = command["signal"], command["file"]
            answers = catches(process.pid, number) and has_open(process.pid, file)
            if not answers or waits_for_signals(process.pid):
                raise ValueError(f"{process.name} does not answer signal {number} in {file}")
            process.signal(number)

    def credit(self, command: dict[str, Any]) -> None:
        """Let more of a log be forwarded."""
        process = self.processes.get(command["process"])
        if process:
            process.log.credit += command["bytes"]

    def measure(self, now: float) -> None:
        """Report what the machine, and every worker with its descendants, uses."""
        self.sampled = now - UNEVEN_SECONDS * os.urandom(1)[0] / 255
        self.looks.measure(now)
        processes: dict[str, dict[str, Any]] = {}
        for row in (row for row in self.family.look() if row.alive):
            process = self.processes.get(row.owner or "")
            if process:
                total = processes.setdefault(process.name, dict(UNUSED))
                total["cpu"] += row.cpu
                total["memory"] += row.memory
                for name, size in transferred(row.pid).items():
                    total[name] += size
                total["processes"] += 1
                total["state"] = row.state if row.pid == process.pid else total["state"]
        for name, total in processes.items():
            process = self.processes[name]
            process.used(total["cpu"], total["memory"])
            total["gpus"] = self.looks.gpus_of(process.command["env"])
        if processes and not self.events.full:
            self.events.emit("usage", time=now, machine=usage(), processes=processes)

    # Ending

    def end(self, command: dict[str, Any]) -> None:
        """End one worker or all."""
        name, grace = command["process"], command["grace"]
        deadline = time.monotonic() + grace
        for process in self.processes.values():
            if name in (None, process.name):
                process.end(deadline, gently=grace > 0)

    def part(self) -> None:
        """Ask all workers to end.

        Their exits are reported together, once no worker can still be saving.
        """
        for process in self.processes.values():
            grace = process.command["grace"]
            process.end(time.monotonic() + grace, gently=grace > 0)

    def kill(self) -> None:
        """Have all workers killed now."""
        for exited in self.held:
            self.events.emit("exited", **exited)
        self.held = []
        for process in self.processes.values():
            process.kill_requested = True
        self.reaper.left[None] = []
        self.reaper.hurry()

    def expire(self, now: float) -> None:
        """Kill the workers whose time is up, and a zygote that takes too long to fork one."""
        for process in self.processes.values():
            if (
                not process.kill_requested
                and process.deadline is not None
                and now >= process.deadline
            ):
                process.kill_requested = True
                self.reaper.hurry()
            limit = DRAIN_SECONDS if process.kill_requested else FORK_SECONDS
            zygote = self.zygotes.get(process.command["zygote"])
            if not zygote or process.pid:
                continue
            if zygote.end_stopped():  # its workers then start cold
                process.cold = {"why": COLD_STOPPED, "what": ""}
            elif now > process.asked + limit:
                os.kill(zygote.pid, signal.SIGKILL)

    def settle(self, now: float) -> None:
        """Kill what must die, and report the workers that have exited."""
        self.expire(now)
        self.reaper.reap()
        self.reaper.purge(now)
        dead = [process for process in self.processes.values() if process.exit]
        for process in sorted(dead, key=lambda one: one.exited_at):
            limit = HUNT_SECONDS if self.reaper.remains(process.name) else DRAIN_SECONDS
            if process.exited_at + limit < now or self.drained(process):
                self.finish(process)

    def exited(self, process: Process) -> None:
        """Note a worker's exit, which is reported once its log is complete."""
        moment = clocks()
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if not pid:
            return
        self.loop.unwatch(process.pidfd)
        os.close(process.pidfd)
        code = os.waitstatus_to_exitcode(status)
        # Exits that are seen at the same time keep their order in their times too.
        moment["time"] = self.last_exit = max(moment["time"], self.last_exit + 1e-6)
        known = self.oom.mark() is not None or code != -signal.SIGKILL
        oom: bool | None = False if known else None
        if code == -signal.SIGKILL and not (process.kill_sent or process.kill_requested):
            oom = self.oom.claim(process.mark)
        how = {"code": code if code >= 0 else None, "signal": -code if code < 0 else None}
        process.exit = {**moment, **how, "oom": oom}
        process.used(usage.ru_utime + usage.ru_stime, usage.ru_maxrss << 10)
        self.reaper.ended(process)

    def drained(self, process: Process) -> bool:
        """Return whether nothing of a dead worker is left to wait for."""
        if not process.log.ended:
            self.relay.tee(process)
        return process.log.ended and self.reaper.cleared(process.name)

    def finish(self, process: Process) -> None:
        """Report an exit, after the rest of the log, whatever the credit, and of the packets."""
        held = not process.log.ended
        self.relay.hang_up(process)
        self.relay.rest(process)
        error = self.error(process, held=held)
        how = dict(process.exit or {})
        asked = process.exited_at >= self.closing.asked
        if self.closing.parting and (asked or how.get("signal") == signal.SIGKILL):
            error = self.closing.parting
            how |= {"code": how.get("code") or None, "signal": None}
        own = {"pid": process.pid, "size": process.log.size, "report": process.report()}
        own |= {"usage": {"cpu": process.cpu, "memory": process.memory, "state": process.state}}
        own |= {"dropped": process.line.dropped}
        self.report({**no_exit(process.name), **own, **how, **error})
        self.forget(process)

    def report(self, exited: dict[str, Any]) -> None:
        """Report an exit; one that the agent's own end causes only when the others may end too."""
        if self.closing.waits:
            self.held.append(exited)
        else:
            self.events.emit("exited", **exited)

    def error(self, process: Process, *, held: bool) -> dict[str, Any]:
        """Return the reason and the error if something is wrong after an exit."""
        log = process.log
        if log.error:
            return {"reason": LOG_LOST, "error": log.error, "errno": log.errno}
        left = self.reaper.remains(process.name)
        if held or left:
            what = f"processes {left}" if left else "an unknown process"
            text = f"{what} could not be ended and may still write to the log"
            return {"reason": REMAINS, "error": text}
        return {}

    def moments(self, now: float) -> list[float]:
        """Return when something is due if nothing happens."""
        processes = self.processes.values()
        moments = [
            one.deadline for one in processes if one.deadline is not None and not one.kill_requested
        ]
        if any(not one.pid for one in processes):
            moments.append(now + FORK_CHECK_SECONDS)
        if self.reaper.purging:
            moments.append(self.reaper.rescan)
        return moments


def descriptors_left() -> int:
    """Return how many more files this process may open."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return most - len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - no paths are needed


def no_exit(process: str, **why: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON values
    """Return the fields of `exited` for a worker that never ran, and `why` if that is known."""
    unknown = dict.fromkeys(("pid", "code", "signal", "report", "oom", "reason", "error", "errno"))
    none = {"size": 0, "dropped": 0, "usage": {"cpu": 0.0, "memory": 0}}
    return {"process": process, **unknown, **clocks(), **none, **why}
