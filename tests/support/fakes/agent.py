"""An agent that speaks the protocol but runs no processes."""

from __future__ import annotations

import asyncio
import math
import signal
import sys
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from mwmagic.agent.wire import CHUNK_BYTES, as_text, packed, unpacked
from mwmagic.engines import CODE
from mwmagic.engines.link import within
from mwmagic.model.messages import COMMANDS, VERSION, check, decode, encode

from .worker import FakeWorker

if TYPE_CHECKING:
    from collections.abc import Callable

    from mwmagic.model.messages import Message

    from .machine import FakeMachine
    from .wire import Wire
    from .worker import Script

__all__ = ["FakeAgent"]


class FakeAgent:
    """The agent on a fake machine.

    Parameters
    ----------
    machine : FakeMachine
        The machine.
    wire : Wire
        Carries the commands and events.
    script : callable
        What each task does.
    """

    def __init__(self, machine: FakeMachine, wire: Wire, script: Script) -> None:
        self.machine = machine
        self.workers: dict[str, FakeWorker] = {}
        self.held: set[int] = set()
        self.listening: set[int] = set()
        self._wire = wire
        self._script = script
        self._sample = 0.0
        self._until = math.inf
        self._tasks = {asyncio.create_task(self._serve())}
        machine.agents.add(self)

    def emit(self, kind: str, **fields: Any) -> None:
        """Send an event."""
        self._wire.report(encode({"type": kind, **fields}))

    def vanish(self) -> None:
        """End without a message, and all workers with it."""
        self.machine.agents.discard(self)
        for task in self._tasks:
            task.cancel()
        for worker in self.workers.values():
            worker.vanish()
        self._wire.report(None)

    async def _serve(self) -> None:
        while line := await self._command():
            command = check(decode(line), COMMANDS)
            if command["type"] == "close":
                break
            self._obey(command)
        self._close()

    async def _command(self) -> bytes:
        """Return the next line, or nothing once the lease is over."""
        line = self._wire.commands.readline()
        try:
            left = self._until - self.machine.time
            return await (line if left == math.inf else within(max(left, 0.0), line))
        except asyncio.TimeoutError:
            return b""

    def _close(self) -> None:
        """End as a real agent does: first its workers, then its output."""
        self.machine.agents.discard(self)
        for worker in self.workers.values():
            worker.vanish()
        self._wire.report(None)

    def _obey(self, command: Message) -> None:
        try:
            _HANDLERS[command["type"]](self, command)
        except (OSError, ValueError) as error:
            known = {name: command[name] for name in ("id", "process", "key") if name in command}
            self.emit("refused", command=command["type"], reason=None, error=str(error), **known)

    def _spawn(self, coroutine: Any) -> None:
        task = asyncio.ensure_future(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _clocks(self) -> dict[str, float]:
        return {"time": self.machine.time, "wall": time.time()}

    # Commands.

    def hello(self, command: Message) -> None:
        """Greet."""
        self._sample = command["sample"]
        if command["silence"]:
            self._until = self.machine.time + command["silence"]
        own = {"pid": 0, "host": self.machine.name, "python": self.machine.has.python}
        own |= {"executable": sys.executable, "package": str(CODE), "folder": "/brought"}
        own |= {"addresses": dict(self.machine.has.addresses)}
        self.emit("hello", version=VERSION, **own, **self._clocks())
        if self._sample:
            self._spawn(self._measure())

    def look(self, command: Message) -> None:
        """Report what the machine has, once that is known."""
        self._spawn(self._looked(command["id"]))

    async def _looked(self, number: int) -> None:
        await asyncio.sleep(self.machine.look_seconds)
        self.emit("looked", id=number, machine=asdict(self.machine.has))

    def find(self, command: Message) -> None:
        """Report the versions of packages that the machine was given."""
        versions = {name: self.machine.versions.get(name, "1.0") for name in command["names"]}
        self.emit("found", id=command["id"], versions=versions)

    def listen(self, command: Message) -> None:
        """Pretend to listen at a held port."""
        if command["port"] not in self.held:
            raise ValueError(f"port {command['port']} is not held")
        self.listening.add(command["port"])
        self.emit("listening", id=command["id"])

    def unlisten(self, _: Message) -> None:
        """Listen no more."""
        self.listening.clear()

    def reach(self, command: Message) -> None:
        """Report what the test made unreachable."""
        hosts = [address.rpartition(":")[0] for address, _ in command["targets"]]
        results = [self.machine.unreachable.get(host) for host in hosts]
        self.emit("reached", id=command["id"], results=results)

    def hold(self, command: Message) -> None:
        """Hold ports."""
        ports = [next(self.machine.ports) for _ in range(command["count"])]
        self.held |= set(ports)
        self.emit("held", id=command["id"], ports=ports)

    def release(self, command: Message) -> None:
        """Give ports back."""
        self.held -= set(command["ports"])

    def warm(self, command: Message) -> None:
        """Pretend to import modules, and report when that is done."""
        self._spawn(self._import(command["key"]))

    def cool(self, _: Message) -> None:
        """Pretend to let a warm process end."""

    async def _import(self, key: str) -> None:
        await self.machine.imported()
        pid = next(self.machine.pids)
        seconds = self.machine.warm_seconds
        self.emit("warmed", key=key, pid=pid, seconds=seconds, reads=[], sets={}, left=[])

    def start(self, command: Message) -> None:
        """Start a worker."""
        if command["process"] in self.workers:
            raise ValueError(f"{command['process']} is still alive")
        worker = FakeWorker(self.machine, command, self._forward, self._said)
        self.workers[worker.process] = worker
        self.machine.write(command["log"], b"")
        self._spawn(self._run(worker, warm=command["zygote"] is not None))

    async def _run(self, worker: FakeWorker, *, warm: bool) -> None:
        own = {"process": worker.process, "pid": worker.pid, "warm": warm}
        self.emit("started", cold=None, **own, **self._clocks())
        code = await worker.run(self._script)
        moment = self._clocks()
        self._forward(worker, all_of_it=True)
        del self.workers[worker.process]
        how = {"code": code, "signal": worker.signal, "report": worker.report, "oom": False}
        usage = {"cpu": worker.cpu, "memory": worker.memory}
        size = len(worker.output)
        rest = {"size": size, "usage": usage, "dropped": 0}
        fine = dict.fromkeys(("reason", "error", "errno"))
        self.emit("exited", process=worker.process, **moment, **how, **rest, **fine)

    def _said(self, worker: FakeWorker, data: str) -> None:
        size = len(worker.output)
        at = self.machine.time
        self.emit("packet", process=worker.process, time=at, size=size, data=data)

    def _forward(self, worker: FakeWorker, *, all_of_it: bool = False) -> None:
        while (piece := worker.forward(all_of_it=all_of_it)) is not None:
            offset, data = piece
            for at in range(0, len(data), CHUNK_BYTES):
                text = as_text(data[at : at + CHUNK_BYTES])
                self.emit("output", process=worker.process, offset=offset + at, data=text)

    def credit(self, command: Message) -> None:
        """Let more of a log be forwarded."""
        worker = self.workers.get(command["process"])
        if worker is not None:
            worker.credit += command["bytes"]
            self._forward(worker)

    def end(self, command: Message) -> None:
        """End one worker or all."""
        number = signal.SIGTERM if command["grace"] > 0 else signal.SIGKILL
        for worker in list(self.workers.values()):
            if command["process"] in (None, worker.process):
                worker.take(number)

    def signal(self, command: Message) -> None:
        """Send a worker a signal."""
        worker = self.workers.get(command["process"])
        if worker is not None:
            worker.take(command["signal"])

    def fetch(self, command: Message) -> None:
        """Send a piece of a file."""
        data, start = self.machine.read(command["path"]), command["offset"]
        piece = data[start : start + min(command["bytes"], CHUNK_BYTES)]
        size = len(data)
        self.emit("fetched", id=command["id"], offset=start, data=packed(piece), size=size)

    def list(self, command: Message) -> None:
        """Send the names and sizes of the files below a directory."""
        self.emit("listed", id=command["id"], files=self.machine.below(command["path"]))

    def put(self, command: Message) -> None:
        """Store a piece of a file."""
        self.machine.store(command["path"], command["offset"], unpacked(command["data"]))
        self.emit("stored", id=command["id"])

    def tell(self, command: Message) -> None:
        """Forward a packet to workers."""
        for name in command["processes"]:
            worker = self.workers.get(name)
            if worker is not None:
                worker.received.put_nowait(command["data"])

    def ping(self, command: Message) -> None:
        """Answer, and extend the lease."""
        if command["until"] is not None:
            self._until = command["until"]
        self.emit("pong", n=command["n"], time=self.machine.time)

    async def _measure(self) -> None:
        while True:
            await asyncio.sleep(self._sample)
            used = {
                name: {"cpu": one.cpu, "memory": one.memory, "state": "S", "processes": 1}
                for name, one in self.workers.items()
            }
            if used:
                machine = {"load": self.machine.load, "memory": self.machine.used}
                self.emit("usage", time=self.machine.time, machine=machine, processes=used)


_HANDLERS: dict[str, Callable[[FakeAgent, Message], None]] = {
    "hello": FakeAgent.hello,
    "look": FakeAgent.look,
    "find": FakeAgent.find,
    "listen": FakeAgent.listen,
    "unlisten": FakeAgent.unlisten,
    "reach": FakeAgent.reach,
    "hold": FakeAgent.hold,
    "release": FakeAgent.release,
    "warm": FakeAgent.warm,
    "cool": FakeAgent.cool,
    "start": FakeAgent.start,
    "credit": FakeAgent.credit,
    "end": FakeAgent.end,
    "signal": FakeAgent.signal,
    "ask": FakeAgent.signal,
    "fetch": FakeAgent.fetch,
    "list": FakeAgent.list,
    "put": FakeAgent.put,
    "tell": FakeAgent.tell,
    "ping": FakeAgent.ping,
}
