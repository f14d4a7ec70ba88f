"""What any engine must do, as checks that its author can run.

Each check is a coroutine function that takes a `Subject` and raises
`NotConforming` where the engine falls short. With pytest:

>>> @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
... def test_conformance(check, tmp_path):
...     subject = Subject(make=MyEngine, folder=str(tmp_path))
...     asyncio.run(check(subject))
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import sys
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from mwmagic.agent.wire import as_bytes
from mwmagic.engines.channel import Channel
from mwmagic.errors import MwmagicError
from mwmagic.model.cluster import ClusterSpec, make_tasks
from mwmagic.model.machine import Machine
from mwmagic.model.placement import spread

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from mwmagic.engines import Engine, Host
    from mwmagic.model.cluster import Task
    from mwmagic.model.messages import Message

    from .worker import FakeWorker

__all__ = ["CHECKS", "NotConforming", "Subject", "perform"]

CREDIT_BYTES = 100
"""So little that a log takes many turns."""

LONG_BYTES = 10_000

CODE = 3
"""An exit code that nothing but a worker's own exit has."""

_PROGRAM = """
import socket, sys, time
for step in sys.argv[1:]:
    kind, _, value = step.partition("=")
    if kind == "print":
        print(value, flush=True)
    elif kind == "write":
        sys.stdout.write("x" * int(value))
    elif kind == "listen":
        server = socket.socket()
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        server.bind(("", int(value)))
        server.listen()
        print("listening", flush=True)
        server.accept()
    elif kind == "reach":
        host, _, port = value.rpartition(":")
        socket.create_connection((host, int(port)), 10)
    elif kind == "exit":
        sys.exit(int(value))
    elif kind == "hang":
        time.sleep(600)
"""


class NotConforming(AssertionError):
    """An engine does not do what it must."""


def _break(_: Host, channel: Channel) -> None:
    if channel.pid is not None:
        os.kill(channel.pid, signal.SIGKILL)


def _command(*steps: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", _PROGRAM, *steps]


@dataclass(frozen=True)
class Subject:
    """An engine under test.

    Parameters
    ----------
    make : callable
        Returns a new engine.
    folder : str
        A directory on every machine where files may be written.
    tasks : int
        How many tasks to ask machines for.
    lose : callable
        Has a machine go, given the host and the channel to its agent; by default
        the channel's process on this machine is killed.
    network : bool
        Whether workers have real sockets.
    command : callable
        Returns a command line that carries steps out, such as ``print=x``, ``exit=3`` or ``hang``.
    """

    make: Callable[[], Engine]
    folder: str
    tasks: int = 3
    lose: Callable[[Host, Channel], None] = _break
    network: bool = True
    command: Callable[..., list[str]] = _command


async def perform(worker: FakeWorker) -> int:
    """Carry the steps out as a `FakeEngine`'s script."""
    for step in worker.argv[worker.argv.index(_PROGRAM) + 1 :]:
        kind, _, value = step.partition("=")
        if kind == "print":
            worker.print(value)
        elif kind == "write":
            worker.write(b"x" * int(value))
        elif kind == "hang":
            await worker.hang()
        elif kind == "exit":
            return int(value)
    return 0


def _expect(holds: object, what: str) -> None:
    if not holds:
        raise NotConforming(what)


@dataclass
class _Session:
    """Agents on all machines of an allocation."""

    subject: Subject
    engine: Engine
    hosts: Sequence[Host]
    channels: list[Channel] = field(default_factory=list)
    events: dict[Channel, asyncio.Queue[Message]] = field(default_factory=dict)
    lost: list[Channel] = field(default_factory=list)
    numbers: itertools.count[int] = field(default_factory=itertools.count)

    async def open(self) -> None:
        for host in self.hosts:
            channel = await Channel.open(host)
            self.channels.append(channel)
            self.events[channel] = asyncio.Queue()
            channel.listener = self.events[channel].put_nowait
            channel.lost = partial(self.lost.append, channel)

    def start(self, channel: Channel, *steps: str) -> str:
        """Start a process that carries steps out, and return its name."""
        name = f"conformance-{next(self.numbers)}"
        channel.send(
            "start",
            process=name,
            argv=self.subject.command(*steps),
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            cwd="/",
            log=self.log(name),
            report=None,
            zygote=None,
            credit=CREDIT_BYTES,
        )
        return name

    def log(self, name: str) -> str:
        return os.path.join(self.subject.folder, f"{name}.log")  # noqa: PTH118 - of another machine

    async def until(self, channel: Channel, *kinds: str) -> Message:
        """Return the next event of one of these kinds."""
        while (event := await self.events[channel].get())["type"] not in kinds:
            pass
        return event

    async def output(self, channel: Channel) -> tuple[bytes, Message]:
        """Return what a process printed, in order and without holes, and how it exited."""
        data = b""
        while (event := await self.until(channel, "output", "exited"))["type"] == "output":
            _expect(event["offset"] == len(data), "output arrives in order and without holes")
            piece = as_bytes(event["data"])
            data += piece
            channel.send("credit", process=event["process"], bytes=len(piece))
        return data, event


def _tasks(subject: Subject) -> Sequence[Task]:
    return make_tasks(subject.tasks)


async def _allocate(engine: Engine, subject: Subject, avoid: Sequence[str] = ()) -> Sequence[Host]:
    return await engine.allocate(_tasks(subject), avoid=frozenset(avoid), told=lambda _: None)


@asynccontextmanager
async def _session(subject: Subject) -> AsyncIterator[_Session]:
    engine = subject.make()
    session = None
    try:
        session = _Session(subject, engine, await _allocate(engine, subject))
        await session.open()
        yield session
    finally:
        if session is not None:
            await asyncio.gather(*(channel.close() for channel in session.channels))
        await engine.release()


async def machines_are_enough(subject: Subject) -> None:
    """Every task has a slot on a machine, and machines have names of their own."""
    async with _session(subject) as session:
        names = [host.name for host in session.hosts]
        _expect(names, "allocate returns at least one machine")
        _expect(len(set(names)) == len(names), f"no two machines share a name: {names}")
        spread(_tasks(subject), [host.slots for host in session.hosts])
        _expect(all(host.address for host in session.hosts), "each machine has an address")


async def each_machine_says_what_it_has(subject: Subject) -> None:
    """Each machine has processors and memory, and GPUs or a reason why not."""
    async with _session(subject) as session:
        for channel in session.channels:
            machine = Machine.read((await channel.request("look"))["machine"])
            _expect(machine.processors > 0, f"it has processors: {machine}")
            _expect(machine.memory > 0, f"it has memory: {machine}")
            _expect(bool(machine.gpus) != bool(machine.why), f"GPUs, or why not: {machine}")
            _expect(machine.host and machine.python, f"it has a name and a Python: {machine}")


async def ports_are_held_on_each_machine(subject: Subject) -> None:
    """The ports held form a cluster with the addresses that the engine gives."""
    async with _session(subject) as session:
        shares = spread(_tasks(subject), [host.slots for host in session.hosts])
        placed = []
        for channel, tasks in zip(session.channels, shares, strict=True):
            ports = await channel.hold(len(tasks))
            placed += [
                (task, f"{channel.host.address}:{port}")
                for task, port in zip(tasks, ports, strict=True)
            ]
        ClusterSpec(tuple(placed))


async def addresses_are_reachable(subject: Subject) -> None:
    """A server on one machine is reached from the next at the address that the engine gives."""
    if not subject.network:
        return
    async with _session(subject) as session:
        server, client = session.channels[0], session.channels[-1]
        [port] = await server.hold(1)
        session.start(server, f"listen={port}")
        await session.until(server, "output")
        session.start(client, f"reach={server.host.address}:{port}")
        while not (end := await session.until(client, "exited"))["process"].endswith("-1"):
            pass
        _expect(
            end["code"] == 0, f"{server.host.address}:{port} is reached from {client.host.name}"
        )


async def a_process_says_all_before_it_exits(subject: Subject) -> None:
    """Output arrives in order, whatever the credit, and the exit after its last byte."""
    async with _session(subject) as session:
        for channel in session.channels:
            session.start(channel, "print=hello", f"write={LONG_BYTES}", f"exit={CODE}")
            data, end = await session.output(channel)
            _expect(data == b"hello\n" + b"x" * LONG_BYTES, "all that is printed arrives")
            _expect((end["code"], end["signal"]) == (CODE, None), "the exit code arrives")
            _expect(end["size"] == len(data), "the exit tells the size of the log")


async def files_are_read_where_they_are(subject: Subject) -> None:
    """A log is fetched piece by piece from the machine that it is on."""
    async with _session(subject) as session:
        for channel in session.channels:
            name = session.start(channel, f"write={LONG_BYTES}")
            await session.output(channel)
            fetch = partial(channel.request, "fetch", path=session.log(name))
            piece = await fetch(offset=LONG_BYTES - 10, bytes=CREDIT_BYTES)
            _expect(piece["data"] == "x" * 10, "a piece at the end is what is there")
            _expect(piece["size"] == LONG_BYTES, "a piece tells how long the file is")
            beyond = await fetch(offset=LONG_BYTES, bytes=CREDIT_BYTES)
            _expect(not beyond["data"], "there is nothing beyond the end")
            try:
                await channel.request("fetch", path=session.log("none"), offset=0, bytes=1)
            except MwmagicError:
                continue
            raise NotConforming("a file that is not there cannot be fetched")


async def times_are_comparable(subject: Subject) -> None:
    """Processes started one after the other on all machines have times in that order."""
    async with _session(subject) as session:
        times = []
        for channel in session.channels:
            session.start(channel, "exit=0")
            times.append((await session.until(channel, "exited"))["time"])
        _expect(times == sorted(times), f"times of all machines compare: {times}")


async def a_process_is_ended(subject: Subject) -> None:
    """A process that hangs is ended at once."""
    async with _session(subject) as session:
        for channel in session.channels:
            name = session.start(channel, "hang")
            await session.until(channel, "started")
            channel.send("end", process=name, grace=0.0)
            end = await session.until(channel, "exited")
            _expect(end["signal"] == signal.SIGKILL, "a process is killed")


async def each_machine_has_a_warm_process(subject: Subject) -> None:
    """A warm process on each machine imports what it is told to."""
    from mwmagic.supervisor.place import warm_command

    async with _session(subject) as session:
        argv, env = warm_command(["json"]), dict(os.environ)
        for channel in session.channels:
            channel.send("warm", key="k", argv=argv, env=env, cwd="/")
        for channel in session.channels:
            event = await session.until(channel, "warmed", "cooled", "refused")
            _expect(event["type"] == "warmed", f"the warm process is ready: {event}")


async def a_lost_machine_is_noticed_once(subject: Subject) -> None:
    """A machine that goes is reported once; the others go on."""
    async with _session(subject) as session:
        *others, gone = session.channels
        for channel in session.channels:
            session.start(channel, "hang")
            await session.until(channel, "started")
        subject.lose(gone.host, gone)
        try:
            await gone.hold(1)
        except MwmagicError:
            pass
        else:
            raise NotConforming("a request to a lost machine fails")
        _expect(session.lost == [gone], "exactly the lost machine is reported, once")
        for channel in others:
            _expect(await channel.hold(1), "the other machines answer")
        word = await session.engine.why(gone.host)
        _expect(word is None or isinstance(word, str), "`why` returns words or None")


async def another_allocation_follows_a_loss(subject: Subject) -> None:
    """After a loss `allocate` has machines again, or says that there are none."""
    async with _session(subject) as session:
        gone = session.channels[-1]
        subject.lose(gone.host, gone)
        await gone.close()
        try:
            hosts = await _allocate(session.engine, subject, [gone.host.name])
        except MwmagicError:
            return
        _expect(hosts, "allocate returns machines or raises")
        others = [host for host in hosts if host.name != gone.host.name]
        _expect(not others or len(others) == len(hosts), "a lost machine is avoided")


async def release_is_harmless(subject: Subject) -> None:
    """`release` may come first, twice, and after an allocation that was cancelled."""
    await subject.make().release()
    engine = subject.make()
    await _allocate(engine, subject)
    await engine.release()
    await engine.release()
    _expect(not engine.helpers, "no helper is left after release")
    engine = subject.make()
    waiting = asyncio.ensure_future(_allocate(engine, subject))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await engine.release()
    _expect(not engine.helpers, "no helper is left after a cancelled allocation")


CHECKS: tuple[Callable[[Subject], Awaitable[Any]], ...] = (
    machines_are_enough,
    each_machine_says_what_it_has,
    ports_are_held_on_each_machine,
    addresses_are_reachable,
    a_process_says_all_before_it_exits,
    files_are_read_where_they_are,
    times_are_comparable,
    a_process_is_ended,
    each_machine_has_a_warm_process,
    a_lost_machine_is_noticed_once,
    another_allocation_follows_a_loss,
    release_is_harmless,
)
"""What an engine must do; each takes a `Subject`."""
