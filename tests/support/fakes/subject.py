"""An engine under test, and agents on all of its machines."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import sys
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from mwmagic.agent.wire import as_bytes
from mwmagic.engines.channel import Channel
from mwmagic.model.cluster import make_tasks

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from mwmagic.engines import Engine, Host
    from mwmagic.model.cluster import Task
    from mwmagic.model.messages import Message

    from .worker import FakeWorker

__all__ = [
    "SMALL_CREDIT_BYTES",
    "Agents",
    "NotConforming",
    "Subject",
    "agents_of",
    "allocate",
    "expect",
    "perform",
    "tasks_of",
]

SMALL_CREDIT_BYTES = 100
"""So little that a log needs many rounds of credit."""

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
    """An engine does not fulfil its contract."""


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
        A directory that exists on every machine and is writable.
    tasks : int
        The number of tasks for which to request machines.
    lose : callable
        Makes a machine disappear, given the host and the channel to its agent; by
        default the channel's process on this machine is killed.
    network : bool
        Whether workers have real sockets.
    command : callable
        Returns a command line that performs steps such as ``print=x``, ``exit=3`` or ``hang``.
    """

    make: Callable[[], Engine]
    folder: str
    tasks: int = 3
    lose: Callable[[Host, Channel], None] = _break
    network: bool = True
    command: Callable[..., list[str]] = _command


async def perform(worker: FakeWorker) -> int:
    """Perform the steps, as the script of a `FakeEngine`."""
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


def expect(holds: object, what: str) -> None:
    """Raise `NotConforming` unless a condition holds."""
    if not holds:
        raise NotConforming(what)


@dataclass
class Agents:
    """Agents on all machines of an allocation."""

    subject: Subject
    engine: Engine
    hosts: Sequence[Host]
    channels: list[Channel] = field(default_factory=list)
    events: dict[Channel, asyncio.Queue[Message]] = field(default_factory=dict)
    lost: list[Channel] = field(default_factory=list)
    numbers: itertools.count[int] = field(default_factory=itertools.count)

    async def open(self) -> None:
        """Start the agents."""
        for host in self.hosts:
            channel = await Channel.open(host)
            self.channels.append(channel)
            self.events[channel] = asyncio.Queue()
            channel.listener = self.events[channel].put_nowait
            channel.lost = partial(self.lost.append, channel)

    def start(self, channel: Channel, *steps: str) -> str:
        """Start a process that performs steps, and return its name."""
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
            attributes={},
            credit=SMALL_CREDIT_BYTES,
            grace=0.0,
        )
        return name

    def log(self, name: str) -> str:
        """Return the path of a process's log."""
        return os.path.join(self.subject.folder, "logs", f"{name}.log")  # noqa: PTH118 - of another machine

    async def until(self, channel: Channel, *kinds: str) -> Message:
        """Return the next event of one of these kinds."""
        while (event := await self.events[channel].get())["type"] not in kinds:
            pass
        return event

    async def output(self, channel: Channel) -> tuple[bytes, Message]:
        """Return a process's output, checked to be in order and without gaps, and its exit."""
        data = b""
        while (event := await self.until(channel, "output", "exited"))["type"] == "output":
            expect(event["offset"] == len(data), "output arrives in order and without gaps")
            piece = as_bytes(event["data"])
            data += piece
            channel.send("credit", process=event["process"], bytes=len(piece))
        return data, event


def tasks_of(subject: Subject) -> Sequence[Task]:
    """Return the tasks that an engine must provide machines for."""
    return make_tasks(subject.tasks)


async def allocate(engine: Engine, subject: Subject, avoid: Sequence[str] = ()) -> Sequence[Host]:
    """Return the machines that an engine provides."""
    return await engine.allocate(tasks_of(subject), avoid=frozenset(avoid), notify=lambda _: None)


@asynccontextmanager
async def agents_of(subject: Subject) -> AsyncIterator[Agents]:
    """Allocate machines, start an agent on each, and give all back in the end."""
    engine = subject.make()
    agents = None
    try:
        agents = Agents(subject, engine, await allocate(engine, subject))
        await agents.open()
        yield agents
    finally:
        if agents is not None:
            await asyncio.gather(*(channel.close() for channel in agents.channels))
        await engine.release()
