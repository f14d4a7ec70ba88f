"""Links that are cut for a while, at any moment: whole runs on machines that are made up."""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass

import pytest
from clock import run_skipping
from fakes import FakeEngine, FakeMachine
from served import served

from mwmagic.model.findings import Symptom
from mwmagic.model.messages import Start
from mwmagic.model.options import ClusterOptions
from mwmagic.model.status import RunStatus

LINK = (Symptom.HOST_LOST, Symptom.AGENT_LOST, Symptom.CUT_OFF)
"""What may be told of a cut: that a machine was lost, or did not answer."""

UNHEALTHY = (
    "tensorflow.python.framework.errors_impl.UnavailableError: Collective ops is aborted by: "
    "Task /job:worker/replica:0/task:{} heartbeat timeout: unhealthy"
)

STEPS = 25


@dataclass
class Cut:
    """A cut of a machine's link, and the patience of what trains over it."""

    victim: int
    ways: tuple[str, ...]
    at: float
    seconds: float
    patience: float
    spare: bool
    retries: dict[str, float]

    @classmethod
    def drawn(cls, seed):
        draw = random.Random(seed)
        return cls(
            victim=draw.randrange(2),
            ways=draw.choice([("there",), ("back",), ("there", "back")]),
            at=draw.uniform(0.0, 4.0),
            seconds=draw.uniform(0.5, 20.0),
            patience=draw.choice([draw.uniform(1.0, 9.0), draw.uniform(1.0, 9.0), 1e9]),
            spare=draw.random() < 0.7,
            retries={way: draw.uniform(0.1, 0.4) for way in ("there", "back")},
        )


async def cut_run(folder, cut, restarts=1):
    """Run two tasks on machines of which one is cut off; return the run's last status."""
    machines = [FakeMachine(name, shared=False, clock=at * 1e4) for at, name in enumerate("abc")]
    victim = machines[cut.victim]
    victim.retry_seconds = cut.retries
    places = {}

    async def train(worker):
        used = places.setdefault(worker.attempt, set())
        used.add(worker.machine)
        for step in range(STEPS):
            worker.print(f"step {step}")
            await worker.sleep(1.0)
            while victim.cut_ways and len(used) > 1 and victim in used:
                if time.monotonic() > since + cut.patience:
                    worker.print(UNHEALTHY.format(cut.victim))
                    return 1
                await worker.sleep(0.1)
        return 0

    there = machines if cut.spare else machines[:2]
    options = ClusterOptions(2, name="c", directory=str(folder), restarts=restarts, lease=10)
    engine = FakeEngine(there, train, most=2)
    async with served(Start(options), folder, engine) as client:
        await client.placed("placed")
        await client.launch()
        await client.state("running")
        await asyncio.sleep(cut.at)
        since = time.monotonic()
        victim.cut(*cut.ways)
        await asyncio.sleep(cut.seconds)
        victim.mend()
        return RunStatus.from_json(await client.state("finished", "failed"))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_a_cut_uses_at_most_one_restart_and_is_named(seed, tmp_path, monkeypatch):
    cut = Cut.drawn(seed)
    run = run_skipping(monkeypatch, cut_run(tmp_path, cut))
    assert run.state.value == "finished", (cut, run.cause, run.setbacks)
    assert run.attempt <= 2, (cut, run.setbacks)
    for setback in run.setbacks:
        assert setback.cause.symptom in LINK, (cut, setback)
        assert setback.cause.finding.host == "ab"[cut.victim], (cut, setback)


def cut_between(a, b, places, afterwards):
    """Return a training that cuts two machines off from each other where it runs on both."""

    async def train(worker):
        used = places.setdefault(worker.attempt, set())
        used.add(worker.machine.name)
        await worker.sleep(1.0)
        if {a.name, b.name} <= used:
            silent = {"why": "silent", "at": [], "error": "timed out"}
            a.unreachable, b.unreachable = {b.name: silent}, {a.name: silent}
            return await afterwards(worker)
        return 0

    return train


@pytest.mark.slow
def test_a_cut_between_two_machines_that_both_answer_is_got_around(tmp_path, monkeypatch):
    a, b, c = (FakeMachine(name, shared=False) for name in "abc")
    places = {}

    async def fail(worker):
        worker.print(UNHEALTHY.format(1))
        return 1

    train = cut_between(a, b, places, fail)

    async def test():
        options = ClusterOptions(2, name="c", directory=str(tmp_path), restarts=1, lease=10)
        engine = FakeEngine([a, b, c], train, most=2)
        async with served(Start(options), tmp_path, engine) as client:
            await client.placed("placed")
            await client.launch()
            return await client.state("finished", "failed")

    assert run_skipping(monkeypatch, test())["state"] == "finished"
    assert places == {1: {"a", "b"}, 2: {"a", "c"}}


@pytest.mark.slow
@pytest.mark.parametrize("on_stall", ["report", "restart"])
def test_a_stall_names_the_machines_that_cannot_connect_and_a_restart_parts_them(
    on_stall, tmp_path, monkeypatch
):
    a, b, c = (FakeMachine(name, shared=False) for name in "abc")
    places = {}
    train = cut_between(a, b, places, lambda worker: worker.hang())

    async def test():
        given = {"restarts": 1, "lease": 10, "stall_timeout": 5.0, "on_stall": on_stall}
        options = ClusterOptions(2, name="c", directory=str(tmp_path), **given)
        engine = FakeEngine([a, b, c], train, most=2)
        async with served(Start(options), tmp_path, engine) as client:
            await client.placed("placed")
            await client.launch()
            if on_stall == "restart":
                return await client.state("finished", "failed")
            run = {"stall": None}
            while not run["stall"]:
                run = (await client.ask("snapshot"))["run"]
            return run

    run = RunStatus.from_json(run_skipping(monkeypatch, test()))
    if on_stall == "restart":
        assert run.state.value == "finished"
        assert places == {1: {"a", "b"}, 2: {"a", "c"}}
        assert "a cannot connect to b" in run.setbacks[0].cause.finding.detail
    else:
        found = run.stall.why.finding
        assert (found.symptom, found.host, found.peer) == (Symptom.HOSTS_APART, "a", "b")
