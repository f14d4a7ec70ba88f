"""Checks of what every engine must do, for authors of engines.

Each check is a coroutine function that takes a `Subject` and raises
`NotConforming` where the engine falls short. With pytest:

>>> @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
... def test_conformance(check, tmp_path):
...     subject = Subject(make=MyEngine, folder=str(tmp_path))
...     asyncio.run(check(subject))
"""

from __future__ import annotations

import asyncio
import os
import signal
from functools import partial
from typing import TYPE_CHECKING, Any

from mwmagic.agent.wire import unpacked
from mwmagic.errors import MwmagicError
from mwmagic.model.cluster import ClusterSpec
from mwmagic.model.machine import Machine, spread

from .subject import (
    SMALL_CREDIT_BYTES,
    NotConforming,
    Subject,
    agents_of,
    allocate,
    expect,
    perform,
    tasks_of,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["CHECKS", "NotConforming", "Subject", "perform"]

LONG_BYTES = 10_000

EXIT_CODE = 3
"""An exit code that only comes from the worker itself."""


async def machines_are_enough(subject: Subject) -> None:
    """Every task has a slot on a machine, and machines have unique names."""
    async with agents_of(subject) as agents:
        names = [host.name for host in agents.hosts]
        expect(names, "allocate returns at least one machine")
        expect(len(set(names)) == len(names), f"no two machines share a name: {names}")
        spread(tasks_of(subject), [host.slots for host in agents.hosts])
        expect(all(host.address for host in agents.hosts), "each machine has an address")


async def each_machine_says_what_it_has(subject: Subject) -> None:
    """Each machine has CPUs and memory, and GPUs or a reason why not."""
    async with agents_of(subject) as agents:
        for channel in agents.channels:
            machine = Machine.read((await channel.request("look"))["machine"])
            expect(machine.processors > 0, f"it has processors: {machine}")
            expect(machine.memory > 0, f"it has memory: {machine}")
            expect(bool(machine.gpus) != bool(machine.why), f"GPUs, or why not: {machine}")
            expect(machine.host and machine.python, f"it has a name and a Python: {machine}")


async def ports_are_held_on_each_machine(subject: Subject) -> None:
    """Held ports and the addresses from the engine form a valid cluster."""
    async with agents_of(subject) as agents:
        shares = spread(tasks_of(subject), [host.slots for host in agents.hosts])
        placed = []
        for channel, tasks in zip(agents.channels, shares, strict=True):
            ports = await channel.hold(len(tasks))
            placed += [
                (task, f"{channel.host.address}:{port}")
                for task, port in zip(tasks, ports, strict=True)
            ]
        ClusterSpec(tuple(placed))


async def addresses_are_reachable(subject: Subject) -> None:
    """A server on one machine is reachable from another at the address from the engine."""
    if not subject.network:
        return
    async with agents_of(subject) as agents:
        server, client = agents.channels[0], agents.channels[-1]
        [port] = await server.hold(1)
        agents.start(server, f"listen={port}")
        await agents.until(server, "output")
        agents.start(client, f"reach={server.host.address}:{port}")
        while not (end := await agents.until(client, "exited"))["process"].endswith("-1"):
            pass
        expect(end["code"] == 0, f"{server.host.address}:{port} is reached from {client.host.name}")


async def a_process_says_all_before_it_exits(subject: Subject) -> None:
    """Output arrives in order, whatever the credit, and the exit after the last byte."""
    async with agents_of(subject) as agents:
        for channel in agents.channels:
            agents.start(channel, "print=hello", f"write={LONG_BYTES}", f"exit={EXIT_CODE}")
            data, end = await agents.output(channel)
            expect(data == b"hello\n" + b"x" * LONG_BYTES, "all that is printed arrives")
            expect((end["code"], end["signal"]) == (EXIT_CODE, None), "the exit code arrives")
            expect(end["size"] == len(data), "the exit has the size of the log")


async def files_are_read_where_they_are(subject: Subject) -> None:
    """A log is fetched piece by piece from the machine that it is on."""
    async with agents_of(subject) as agents:
        for channel in agents.channels:
            name = agents.start(channel, f"write={LONG_BYTES}")
            await agents.output(channel)
            fetch = partial(channel.request, "fetch", path=agents.log(name))
            piece = await fetch(offset=LONG_BYTES - 10, bytes=SMALL_CREDIT_BYTES)
            expect(
                unpacked(piece["data"]) == b"x" * 10,
                "a piece at the end is as long as what is left",
            )
            expect(piece["size"] == LONG_BYTES, "a piece has the size of the file")
            beyond = await fetch(offset=LONG_BYTES, bytes=SMALL_CREDIT_BYTES)
            expect(not beyond["data"], "there is nothing beyond the end")
            try:
                await channel.request("fetch", path=agents.log("none"), offset=0, bytes=1)
            except MwmagicError:
                continue
            raise NotConforming("a file that does not exist cannot be fetched")


async def times_are_comparable(subject: Subject) -> None:
    """Processes started one after another on all machines have times in that order."""
    async with agents_of(subject) as agents:
        times = []
        for channel in agents.channels:
            agents.start(channel, "exit=0")
            times.append((await agents.until(channel, "exited"))["time"])
        expect(times == sorted(times), f"times of all machines compare: {times}")


async def a_process_is_ended(subject: Subject) -> None:
    """A process that hangs can be killed at once."""
    async with agents_of(subject) as agents:
        for channel in agents.channels:
            name = agents.start(channel, "hang")
            await agents.until(channel, "started")
            channel.send("end", process=name, grace=0.0)
            end = await agents.until(channel, "exited")
            expect(end["signal"] == signal.SIGKILL, "a process is killed")


async def each_machine_has_a_warm_process(subject: Subject) -> None:
    """A warm process on each machine imports the requested modules."""
    from mwmagic.supervisor.preparation import warm_command

    async with agents_of(subject) as agents:
        for channel in agents.channels:
            argv = warm_command(channel, ["json"])
            channel.send("warm", key="k", argv=argv, env=dict(os.environ), cwd="/")
        for channel in agents.channels:
            event = await agents.until(channel, "warmed", "cooled", "refused")
            expect(event["type"] == "warmed", f"the warm process is ready: {event}")


async def a_lost_machine_is_noticed_once(subject: Subject) -> None:
    """The loss of a machine is reported once, and the others continue."""
    async with agents_of(subject) as agents:
        *others, gone = agents.channels
        for channel in agents.channels:
            agents.start(channel, "hang")
            await agents.until(channel, "started")
        subject.lose(gone.host, gone)
        try:
            await gone.hold(1)
        except MwmagicError:
            pass
        else:
            raise NotConforming("a request to a lost machine fails")
        expect(agents.lost == [gone], "exactly the lost machine is reported, once")
        for channel in others:
            expect(await channel.hold(1), "the other machines answer")
        word = await agents.engine.why(gone.host)
        expect(word is None or isinstance(word, str), "`why` returns a string or None")


async def another_allocation_follows_a_loss(subject: Subject) -> None:
    """After a loss, `allocate` returns machines or raises an error."""
    async with agents_of(subject) as agents:
        gone = agents.channels[-1]
        subject.lose(gone.host, gone)
        await gone.close()
        try:
            hosts = await allocate(agents.engine, subject, [gone.host.name])
        except MwmagicError:
            return
        expect(hosts, "allocate returns machines or raises")
        others = [host for host in hosts if host.name != gone.host.name]
        expect(not others or len(others) == len(hosts), "a lost machine is avoided")


async def release_is_harmless(subject: Subject) -> None:
    """`release` may be called first, twice, and after an allocation was cancelled."""
    await subject.make().release()
    engine = subject.make()
    await allocate(engine, subject)
    await engine.release()
    await engine.release()
    expect(not engine.helpers, "no helper is left after release")
    engine = subject.make()
    waiting = asyncio.ensure_future(allocate(engine, subject))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await engine.release()
    expect(not engine.helpers, "no helper is left after a cancelled allocation")


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
"""The checks that an engine must pass; each takes a `Subject`."""
