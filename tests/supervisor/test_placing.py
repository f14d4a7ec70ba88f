"""Clusters that wait for their machines: told, cancelled, failed, and restarted meanwhile."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager

import pytest

from mwmagic.engines import Host
from mwmagic.errors import ClusterError, SupervisorError
from mwmagic.model.messages import MESSAGE_BYTES, VERSION
from mwmagic.model.options import ClusterOptions
from mwmagic.model.start import Start
from mwmagic.supervisor.place import Place
from mwmagic.supervisor.supervisor import Supervisor
from mwmagic.testing import FakeEngine, FakeMachine

pytestmark = pytest.mark.usefixtures("nothing_survives")


class Queue(FakeEngine):
    """An engine whose scheduler lets an allocation wait."""

    def __init__(self, machines, script, most):
        super().__init__(machines, script, most=most)
        self.free = asyncio.Event()
        self.pending = asyncio.Event()
        self.refusal = None
        self.cancelled = 0

    async def allocate(self, tasks, *, avoid, notify):
        notify("job 7 waits (Resources)")
        self.pending.set()
        try:
            await self.free.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.refusal:
            raise self.refusal
        return await super().allocate(tasks, avoid=avoid, notify=notify)


class Client:
    """A client that remembers the latest snapshot."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer
        self.news = None

    async def ask(self, kind, **fields):
        self.writer.write(json.dumps({"type": kind, "id": 1, **fields}).encode() + b"\n")
        while (message := await self.next())["type"] == "snapshot":
            pass
        return message

    async def next(self):
        message = json.loads(await self.reader.readline())
        self.news = message.get("result", message) if message["type"] != "error" else self.news
        return message

    async def until(self, holds):
        while not holds(self.news):
            await self.next()
        return self.news

    async def launch(self):
        order = {"script": "main.py", "source": "", "args": [], "env": {}, "cwd": "/", "tasks": []}
        order |= {"given": {}, "draft": "", "cell": "", "notebook": [], "options": {}}
        return await self.ask("launch", **order)


@asynccontextmanager
async def waiting(folder, machines, script, **options):
    engine = Queue(machines, script, most=2)
    given = ClusterOptions(2, name="c", directory=str(folder), restarts=1, **options)
    one = Supervisor(Start(given), folder / "s", engine)
    await one.open()
    serving = asyncio.create_task(one.serve())
    client = Client(*await asyncio.open_unix_connection(folder / "s", limit=MESSAGE_BYTES))
    await client.ask("hello", version=VERSION, owner=True)
    try:
        yield client, engine
    finally:
        client.writer.close()
        await serving
        assert engine.released


def on(folder, names, script=None, **options):
    """Run a coroutine function with a client and an engine that lets it wait."""
    machines = [FakeMachine(name) for name in names]

    async def succeed(_):
        return 0

    async def test(body):
        async with waiting(folder, machines, script or succeed, **options) as (client, engine):
            await body(client, engine)

    return lambda body: asyncio.run(asyncio.wait_for(test(body), 60))


def state(news):
    return news["cluster"]["placing"]["state"]


def test_a_cluster_that_waits_is_there_and_says_what_the_scheduler_says(tmp_path):
    @on(tmp_path, "ab")
    async def _(client, engine):
        news = await client.until(lambda news: news["cluster"]["placing"]["said"])
        assert news["cluster"]["placing"]["said"] == "job 7 waits (Resources)"
        assert (state(news), news["cluster"]["addresses"]) == ("waiting", {})
        refused = await client.launch()
        assert (refused["type"], refused["kind"]) == ("error", "ClusterPending")
        assert "job 7 waits (Resources)" in refused["error"]
        engine.free.set()
        news = await client.until(lambda news: state(news) == "placed")
        assert len(news["cluster"]["addresses"]) == 2
        assert (await client.launch())["type"] == "reply"


def test_a_cluster_that_waits_is_closed(tmp_path):
    @on(tmp_path, "ab")
    async def _(client, engine):
        await engine.pending.wait()
        await client.ask("close")
        assert await client.reader.read() is not None
        assert engine.cancelled == 1


def test_an_owner_that_dies_takes_back_what_it_waits_for(tmp_path):
    waited = []

    @on(tmp_path, "ab")
    async def _(client, engine):
        await engine.pending.wait()
        waited.append(engine)

    assert waited[0].cancelled == 1


def test_an_owner_learns_why_there_are_no_machines(tmp_path):
    @on(tmp_path, "ab")
    async def _(client, engine):
        engine.refusal = ClusterError("partition gpu does not exist")
        engine.free.set()
        placing = (await client.until(lambda news: state(news) == "failed"))["cluster"]["placing"]
        assert (placing["kind"], placing["error"]) == (
            *("ClusterError", "partition gpu does not exist"),
        )


def test_a_run_that_waits_for_another_machine_is_stopped(tmp_path):
    async def hang(worker):
        await worker.hang()

    @on(tmp_path, "abc", hang)
    async def _(client, engine):
        engine.free.set()
        await client.until(lambda news: state(news) == "placed")
        await client.launch()
        await client.until(lambda news: news["run"]["state"] == "running")
        engine.free.clear()
        engine.pending.clear()
        engine.machines[0].lose()
        await engine.pending.wait()
        await client.ask("stop", task=None, grace=None)
        news = await client.until(lambda news: news["run"]["ended"])
        assert news["run"]["state"] == "stopped"
        assert engine.cancelled == 1
        engine.free.set()
        assert (await client.ask("restart"))["type"] == "reply"
        await client.until(lambda news: news["run"]["state"] == "running")


class Broken(FakeEngine):
    """An engine with machines whose commands fail."""

    async def allocate(self, tasks, *, avoid, notify):
        self.allocations.append(frozenset(avoid))
        return [
            Host(name, name, ("sh", "-c", f"echo {name} is broken >&2; exit 3"))
            for name in "abcdef"
        ]


def test_every_machine_that_cannot_be_reached_is_named(tmp_path):
    async def test():
        engine = Broken([])
        options = ClusterOptions(6, name="c", directory=str(tmp_path))
        place = Place(Start(options), print, print, lambda: None, engine)
        with pytest.raises(SupervisorError) as failure:
            await place.open()
        *lines, last = str(failure.value).splitlines()
        assert [line.split(": ")[1] for line in lines] == [f"{name} is broken" for name in "abcd"]
        assert last == "and 2 other machines"
        assert place.placing.error == str(failure.value)
        with pytest.raises(SupervisorError):
            await place.rebind()
        assert engine.allocations == [frozenset(), frozenset("abcdef")]

    asyncio.run(asyncio.wait_for(test(), 60))
