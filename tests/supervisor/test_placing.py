"""Clusters that wait for their machines: told, cancelled, failed, and restarted meanwhile."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest
from fakes import FakeEngine, FakeMachine
from served import Refused, served

from mwmagic.engines import Host
from mwmagic.errors import ClusterError, SupervisorError
from mwmagic.model.messages import Start
from mwmagic.model.options import ClusterOptions
from mwmagic.supervisor.pool import MachinePool

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


@asynccontextmanager
async def waiting(folder, machines, script, **options):
    engine = Queue(machines, script, most=2)
    given = ClusterOptions(2, name="c", directory=str(folder), restarts=1, **options)
    async with served(Start(given), folder, engine) as client:
        yield client, engine
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


def test_a_cluster_that_waits_is_there_and_says_what_the_scheduler_says(tmp_path):
    @on(tmp_path, "ab")
    async def _(client, engine):
        news = await client.until(lambda news: news["cluster"]["placing"]["message"])
        assert news["cluster"]["placing"]["message"] == "job 7 waits (Resources)"
        assert news["cluster"]["placing"]["state"] == "waiting"
        assert news["cluster"]["addresses"] == {}
        with pytest.raises(Refused, match=r"job 7 waits \(Resources\)") as refused:
            await client.launch()
        assert refused.value.message["kind"] == "ClusterPending"
        engine.free.set()
        await client.placed("placed")
        assert len(client.news["cluster"]["addresses"]) == 2
        await client.launch()


def test_that_there_are_machines_is_reported_without_the_pause_between_news(tmp_path, monkeypatch):
    monkeypatch.setattr("mwmagic.supervisor.supervisor.NEWS_SECONDS", 3600.0)

    @on(tmp_path, "ab")
    async def _(client, engine):
        engine.free.set()
        await client.placed("placed")


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
        placing = await client.placed("failed")
        assert placing["kind"] == "ClusterError"
        assert placing["error"] == "partition gpu does not exist"


def test_a_run_that_waits_for_another_machine_is_stopped(tmp_path):
    async def hang(worker):
        await worker.hang()

    @on(tmp_path, "abc", hang)
    async def _(client, engine):
        engine.free.set()
        await client.placed("placed")
        await client.launch()
        await client.state("running")
        engine.free.clear()
        engine.pending.clear()
        engine.machines[0].lose()
        await engine.pending.wait()
        await client.ask("stop", task=None, grace=None)
        assert (await client.state("stopped", "failed", "finished"))["state"] == "stopped"
        assert engine.cancelled == 1
        engine.free.set()
        await client.ask("restart")
        await client.state("running")


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
        place = MachinePool(Start(options), print, print, lambda: None, engine)
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
