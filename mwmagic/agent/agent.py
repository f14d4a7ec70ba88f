"""The agent: the one process on a machine that starts, watches and ends its workers.

It needs only the standard library, so that an engine can run it anywhere. Commands arrive on
standard input and events leave on standard output (see `wire`). The agent ends, and everything it
started with it, when standard input ends, when the parent that it watches dies, or when its lease
is over, which each ping extends.

It is single-threaded, because the kernel ties a child's death signal to the thread that forked it.
"""

from __future__ import annotations

import math
import os
import select
import signal
import sys
import time
from contextlib import suppress

from . import machine, wire
from .family import Closing, Family
from .fork_server.zygotes import Zygotes
from .machine import Inquiries, Looks, Packages, addresses, python
from .ports import Meeting, Ports
from .system import (
    IGNORED,
    PR_SET_CHILD_SUBREAPER,
    PR_SET_PDEATHSIG,
    EventWriter,
    Loop,
    clocks,
    prctl,
    waiting_in,
)
from .workers import DRAIN_SECONDS, FORK_CHECK_SECONDS, Workers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

GATHER_BYTES = 8 << 10
"""The amount of output below which the agent lets more of it gather in the pipe."""

GATHER_SECONDS = 0.001
"""How long it does so: handling each printed line separately would slow down the worker."""

TICK_SECONDS = 60.0
"""The longest sleep."""

RETRY_SECONDS = 0.002
"""The interval between attempts to write the last events."""

AGAIN_SECONDS = 1.0
"""How much later a second SIGTERM must come to be another request: Slurm sends each one twice."""

STDIN, STDOUT = 0, 1

HOME = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120 - pathlib is slow to import
"""The folder of the package on this machine, where its workers' code is too."""


class Agent:
    """The loop: commands and exits come in, events go out."""

    def __init__(self, folder: str = "") -> None:
        self.folder = folder
        self.loop = Loop()
        self.events = EventWriter(STDOUT)
        self.interest = 0
        self.closing = Closing()
        self.ports = Ports()
        self.family = Family()
        self.inquiries = Inquiries(self.loop, self.family)
        self.looks = Looks(self.inquiries, self.events)
        self.packages = Packages(self.inquiries, self.events)
        self.meeting = Meeting(self.loop, self.ports, self.inquiries, self.events)
        self.zygotes = Zygotes(self.loop, self.events, self.family, self.closing)
        self.workers = Workers(
            self.loop, self.events, self.family, self.zygotes, self.closing, looks=self.looks
        )
        self.incoming = wire.LineBuffer()
        self.sample = 0.0
        self.until = math.inf  # when its lease ends
        self.inherited: dict[str, str] = {}

    # The loop

    def run(self) -> None:
        """Serve until everything has ended."""
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        self.connect()
        try:
            while not self.finished():
                self.workers.relay.taken = 0
                self.loop.turn(self.pause())
                self.settle(time.monotonic())
                self.workers.relay.forward(time.monotonic())
                self.flush()
                if 0 < self.workers.relay.taken < GATHER_BYTES:
                    time.sleep(GATHER_SECONDS)
        finally:
            self.family.kill(self.family.look())
        self.leave()

    def connect(self) -> None:
        """Watch the commands, the reader of the events, and signals."""
        try:
            self.loop.watch(STDIN, self.read)
        except PermissionError:
            sys.exit("the agent's standard input must be a pipe or a socket, its lifeline")
        with suppress(PermissionError):  # a file, which never blocks
            self.loop.watch(STDOUT, self.writable, 0)
        reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for number in {signal.SIGCHLD, signal.SIGTERM} - IGNORED:
            signal.signal(number, lambda *_: None)
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        self.loop.watch(reader, lambda: self.signalled(reader))

    def signalled(self, reader: int) -> None:
        """Close on SIGTERM; on SIGCHLD, an orphan may have to be waited for in this turn."""
        if signal.SIGTERM in waiting_in(reader):
            self.asked()

    def asked(self) -> None:
        """Give the workers their grace and then close; asked again later, close at once."""
        if self.closing.waits:
            if time.monotonic() > self.closing.asked + AGAIN_SECONDS:
                self.close(DRAIN_SECONDS)
        elif self.closing.since is None:
            self.closing.cause = "which got SIGTERM"
            self.closing.asked = time.monotonic()
            self.workers.part()

    def pause(self) -> float:
        """Return how many seconds to sleep if nothing happens."""
        now = time.monotonic()
        workers = self.workers
        moments = [now + TICK_SECONDS, *workers.moments(now), *self.inquiries.moments()]
        if self.closing.since is None:
            moments.append(self.until)
        if self.zygotes.importing:
            moments.append(now + FORK_CHECK_SECONDS)
        if self.sample > 0 and workers.processes:
            moments.append(workers.sampled + self.sample)
        if not self.interest:
            moments += workers.relay.moments(now)
        return max(0.0, min(moments) - now)

    def settle(self, now: float) -> None:
        """Do what is due at a given time."""
        if now > self.until:
            self.closing.cause = "which had heard nothing for too long"
            self.close()
        self.inquiries.expire(now)
        self.zygotes.end_stopped()
        self.workers.settle(now)
        if self.closing.waits and not self.workers.processes:
            self.close(DRAIN_SECONDS)
        if self.sample > 0 and self.workers.processes and now >= self.workers.sampled + self.sample:
            self.workers.measure(now)

    def finished(self) -> bool:
        """Return whether the agent may exit."""
        if self.closing.since is None:
            return False
        return self.closing.late or not (self.workers.processes or self.workers.reaper.left)

    def close(self, drain_seconds: float = 0.0) -> None:
        """End everything and then the agent, which may give its reader some seconds."""
        if self.closing.since is None:
            self.closing.drain_seconds = drain_seconds
            self.closing.since = time.monotonic()
            self.workers.kill()

    def leave(self) -> None:
        """Give the reader some time to take the last events."""
        events, deadline = self.events, time.monotonic() + self.closing.drain_seconds
        while events.waiting and not events.broken and time.monotonic() < deadline:
            select.select([], [STDOUT], [], RETRY_SECONDS)
            events.flush()
        # All is over; as the interpreter ends it would let another one kill this process.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def writable(self) -> None:
        """Note that the reader is gone if nothing is to be written; otherwise `flush` does."""
        self.events.broken |= not self.interest

    def flush(self) -> None:
        """Write events, and ask to be woken when the reader takes more."""
        self.events.flush()
        if self.events.broken:
            self.close()
        interest = select.EPOLLOUT if self.events.waiting and not self.events.broken else 0
        if interest != self.interest:
            self.loop.epoll.modify(STDOUT, interest)
            self.interest = interest
        self.workers.relay.unmute()

    # Commands

    def read(self) -> None:
        """Read commands from standard input; its end ends everything."""
        try:
            data = os.read(STDIN, wire.CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.loop.unwatch(STDIN)
            self.close()
        for line in self.incoming.lines(data):
            self.obey(line)
        self.zygotes.send()
        if len(self.incoming.rest) > wire.MESSAGE_BYTES:
            self.incoming.rest.clear()
            self.refuse({}, f"a command is longer than {wire.MESSAGE_BYTES} bytes")

    def obey(self, line: bytes) -> None:
        """Carry out the command in a line, or say why not."""
        command: dict[str, Any] = {}
        try:
            command = wire.parsed(line)
            fault = wire.fault(command, wire.COMMANDS)
            if fault:
                raise ValueError(fault[:500])  # noqa: TRY301 - one answer to all bad commands
            HANDLERS[command["type"]](self, command)
        except (ValueError, TypeError, OverflowError, OSError) as error:
            self.refuse(command, str(error))

    def refuse(self, command: dict[str, Any], error: str, reason: str | None = None) -> None:
        """Say why a command is not carried out."""
        kind = command.get("type")
        known = {key: command[key] for key in ("process", "id", "key", "cell") if key in command}
        kind = kind if isinstance(kind, str) else None
        self.events.emit("refused", command=kind, reason=reason, error=error, **known)

    def hello(self, command: dict[str, Any]) -> None:
        """Agree on a version, and on when to give up."""
        if command["version"] != wire.VERSION:
            self.close(DRAIN_SECONDS)
            raise ValueError(f"this agent speaks version {wire.VERSION}, not {command['version']}")
        self.sample = command["sample"]
        if command["silence"] > 0:
            self.until = time.monotonic() + command["silence"]
        self.inherited = dict(os.environ) if command["inherit"] else {}
        if command["parent"] is not None:
            self.watch_parent(command["parent"])
        own = {"pid": os.getpid(), "host": os.uname().nodename, "python": python()}
        own |= {"executable": sys.executable, "package": HOME, "folder": self.folder}
        own |= {"addresses": addresses()}
        self.events.emit("hello", version=wire.VERSION, **own, **clocks())

    def watch_parent(self, parent: int) -> None:
        """Close when the parent dies: another process may keep our standard input open."""
        prctl(PR_SET_PDEATHSIG, signal.SIGCONT)  # it could not, if it were stopped by then
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

    def look(self, command: dict[str, Any]) -> None:
        """Report what this machine has."""
        self.looks.look(command["id"])

    def find(self, command: dict[str, Any]) -> None:
        """Report versions of packages."""
        check_strings({"argv": command["names"], "env": command["env"]})
        self.packages.find(command["id"], command["names"], self.environment(command))

    def listen(self, command: dict[str, Any]) -> None:
        """Listen at a held port."""
        self.meeting.listen(command["port"], wire.as_bytes(command["word"]))
        self.events.emit("listening", id=command["id"])

    def reach(self, command: dict[str, Any]) -> None:
        """Report which addresses can be reached."""
        self.meeting.reach(command["id"], command["targets"], command["within"])

    def hold(self, command: dict[str, Any]) -> None:
        """Hold ports."""
        self.events.emit("held", id=command["id"], ports=self.ports.hold(command["count"]))

    def release(self, command: dict[str, Any]) -> None:
        """Give ports back."""
        self.ports.release(command["ports"])

    def warm(self, command: dict[str, Any]) -> None:
        """Start a zygote."""
        check_strings(command)
        self.zygotes.warm({**command, "env": self.environment(command)})

    def start(self, command: dict[str, Any]) -> None:
        """Start a worker."""
        check_strings(command)
        command = {**command, "env": self.environment(command)}
        self.meeting.end()  # or it would get connections that are for the worker
        if self.closing.since is not None or self.closing.waits:
            parting = self.closing.parting or {"error": "the agent is closing"}
            self.refuse(command, **parting)
        else:
            self.workers.start(command)

    def tell(self, command: dict[str, Any]) -> None:
        """Send workers a packet."""
        packet = wire.as_bytes(command["data"])
        for name in command["processes"]:
            self.tell_one(name, packet, command["cell"])

    def tell_one(self, name: str, packet: bytes, cell: int) -> None:
        """Send a worker a packet, or say why it does not accept it; the others get theirs."""
        try:
            self.workers.send(name, packet)
        except OSError as error:
            self.refuse({"type": "tell", "process": name, "cell": cell}, str(error))

    def environment(self, command: dict[str, Any]) -> dict[str, str]:
        """Return the environment of a process: what is sent adds to what it inherits."""
        return {**self.inherited, **command["env"]}

    def fetch(self, command: dict[str, Any]) -> None:
        """Send a piece of a file."""
        piece = machine.file_piece(command["path"], command["offset"], command["bytes"])
        self.events.emit("fetched", id=command["id"], **piece)

    def list(self, command: dict[str, Any]) -> None:
        """Send the names and sizes of the files below a directory."""
        self.events.emit("listed", id=command["id"], files=machine.files_below(command["path"]))

    def put(self, command: dict[str, Any]) -> None:
        """Write a piece of a file."""
        machine.store_piece(command["path"], command["offset"], wire.unpacked(command["data"]))
        self.events.emit("stored", id=command["id"])

    def ping(self, command: dict[str, Any]) -> None:
        """Answer, and extend the lease."""
        if command["until"] is not None:
            self.until = command["until"]
        self.events.emit("pong", n=command["n"], time=time.monotonic())


HANDLERS: dict[str, Callable[[Agent, dict[str, Any]], None]] = {
    "hello": Agent.hello,
    "look": Agent.look,
    "find": Agent.find,
    "hold": Agent.hold,
    "release": Agent.release,
    "listen": Agent.listen,
    "unlisten": lambda agent, _: agent.meeting.end(),
    "reach": Agent.reach,
    "warm": Agent.warm,
    "cool": lambda agent, command: agent.zygotes.cool(command),
    "start": Agent.start,
    "end": lambda agent, command: agent.workers.end(command),
    "signal": lambda agent, command: agent.workers.signal(command),
    "ask": lambda agent, command: agent.workers.ask(command),
    "credit": lambda agent, command: agent.workers.credit(command),
    "tell": Agent.tell,
    "fetch": Agent.fetch,
    "list": Agent.list,
    "put": Agent.put,
    "ping": Agent.ping,
    "close": lambda agent, _: agent.close(DRAIN_SECONDS),
}
"""What carries out each of `wire.COMMANDS`."""


def check_strings(command: dict[str, Any]) -> None:
    """Raise ValueError unless a process can be started with a command's argv and env."""
    argv, env = command["argv"], command["env"]
    if not argv or not all(isinstance(word, str) for word in [*argv, *env.values()]):
        raise ValueError("argv and env must hold strings, and argv at least one")
