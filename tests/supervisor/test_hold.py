"""Machines that are kept for the next owner of a cluster."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager

import pytest
from fakes import FakeEngine, FakeMachine
from served import joined, served

from mwmagic.model.messages import Start
from mwmagic.model.options import ClusterOptions
from mwmagic.supervisor import supervisor

pytestmark = pytest.mark.usefixtures("nothing_survives")

LONG_SECONDS = 1800.0


class Counting(FakeEngine):
    """An engine that counts how often it is asked."""

    asked = 0

    async def allocate(self, tasks, *, avoid, notify):
        self.asked += 1
        return await super().allocate(tasks, avoid=avoid, notify=notify)


class Queue(FakeEngine):
    """An engine whose scheduler never grants anything."""

    async def allocate(self, tasks, *, avoid, notify):
        notify("job 7 waits (Resources)")
        await asyncio.Event().wait()


async def train(worker):
    worker.print("training")
    await worker.hang()


@asynccontextmanager
async def kept(folder, *, hold=LONG_SECONDS, kind=Counting, **options):
    machines = [FakeMachine(name, job="7") for name in "ab"]
    given = ClusterOptions(2, name="c", directory=str(folder), hold=hold, **options)
    async with served(Start(given), folder, kind(machines, train)) as client:
        client.machines = machines
        try:
            yield client
        except BaseException:
            await (await joined(folder, owner=False)).ask("close")
            raise
    assert client.engine.released


def on(folder, **options):
    """Run a coroutine function with an owner."""

    async def test(body):
        async with kept(folder, **options) as client:
            await body(client)

    return lambda body: asyncio.run(asyncio.wait_for(test(body), 60))


async def until_kept(folder):
    """Return a client that owns nothing, once the cluster is kept."""
    other = await joined(folder, owner=False)
    await other.until(lambda news: news["cluster"]["reserved"])
    return other


@pytest.mark.parametrize("goes", ["vanishes", "leaves"])
def test_the_next_owner_has_the_same_machines(goes, tmp_path, monkeypatch):
    monkeypatch.setattr(supervisor, "SIGNAL_SECONDS", 0.01)

    @on(tmp_path)
    async def _(client):
        await client.placed("placed")
        await client.launch()
        await client.state("running")
        if goes == "leaves":
            await client.ask("leave")
        client.writer.close()
        other = await until_kept(tmp_path)
        assert 0 < other.news["cluster"]["reserved"] - time.time() <= LONG_SECONDS
        await other.state("stopped")
        owner = await joined(tmp_path)
        assert owner.news["cluster"]["reserved"] is None
        await owner.launch()
        assert (await owner.state("running"))["state"] == "running"
        assert client.engine.asked == 1
        await owner.ask("close")


def test_machines_are_given_back_if_no_owner_came(tmp_path, monkeypatch):
    monkeypatch.setattr(supervisor, "SIGNAL_SECONDS", 0.01)

    @on(tmp_path, hold=0.05)
    async def _(client):
        await client.placed("placed")
        client.writer.close()


def test_a_request_that_waits_is_kept_too(tmp_path):
    @on(tmp_path, kind=Queue)
    async def _(client):
        await client.until(lambda news: news["cluster"]["placing"]["message"])
        await client.ask("leave")
        other = await until_kept(tmp_path)
        assert other.news["cluster"]["placing"]["state"] == "waiting"
        await other.ask("close")


def test_machines_that_are_lost_are_not_kept(tmp_path):
    @on(tmp_path)
    async def _(client):
        await client.placed("placed")
        await client.ask("leave")
        await until_kept(tmp_path)
        client.machines[0].lose("NODE_FAIL")
        client.machines[1].lose("NODE_FAIL")


def test_a_detached_cluster_is_kept_once_nothing_runs(tmp_path):
    @on(tmp_path)
    async def _(client):
        await client.placed("placed")
        await client.launch()
        await client.state("running")
        await client.ask("detach")
        other = await joined(tmp_path, owner=False)
        assert other.news["cluster"]["reserved"] is None
        assert other.news["run"]["state"] == "running"
        await other.ask("stop", task=None, grace=0.0)
        await until_kept(tmp_path)
        await other.launch()
        assert other.news["cluster"]["reserved"] is None
        await other.ask("close")


def test_an_owner_that_leaves_a_cluster_without_a_hold_ends_it(tmp_path):
    @on(tmp_path, hold=0.0)
    async def _(client):
        await client.placed("placed")
        await client.ask("leave")
