"""Starts that wait for a warm process, and agents that go, with an engine that only notes."""

from __future__ import annotations

import asyncio
import os

import pytest

from mwmagic import engines
from mwmagic.errors import SupervisorError
from mwmagic.model.cluster import ClusterSpec, make_tasks
from mwmagic.model.config import Config
from mwmagic.supervisor.environment import task_environment
from mwmagic.supervisor.place import WARM, Place


class Agent:
    """An agent that notes what it is told."""

    host = "here"
    pid = 0

    def __init__(self):
        self.told = []
        self.ports = iter(range(1000 * (1 + len(Engine.agents)), 9999))
        self.listener = self.lost = None

    async def hold(self, count):
        if Engine.full:
            raise SupervisorError("no ports")
        return [next(self.ports) for _ in range(count)]

    def send(self, kind, **fields):
        self.told.append((kind, fields))

    def starts(self):
        return [(one["process"], one["zygote"]) for kind, one in self.told if kind == "start"]


class Engine:
    """An engine whose agents are not processes."""

    agents = ()
    full = False

    async def reserve(self, tasks):
        agent = Agent()
        Engine.agents = (*Engine.agents, agent)
        return dict.fromkeys(tasks, agent)

    async def close(self):
        pass


@pytest.fixture
def place(monkeypatch):
    monkeypatch.setitem(engines.ENGINES, "local", Engine)
    monkeypatch.setattr(Engine, "agents", ())
    monkeypatch.setattr(Engine, "full", False)
    lost, heard = [], []

    def make(*, warm=True, framework="tensorflow"):
        names = [str(task) for task in make_tasks(2)]
        config = Config("c", "/", names, os.getpid(), warm=warm, framework=framework)
        place = Place(config, heard.append, lost.append)
        asyncio.run(place.open())
        place.heard, place.gone = heard, lost
        return place

    return make


def start(place, index, **env):
    task = place.config.members[index]
    full = task_environment(place.config, place.spec, task, env)
    place.start(task, env=full, process=f"p{index}", argv=["x"])


def says(place, kind, **fields):
    Engine.agents[-1].listener({"type": kind, **fields})


def test_without_a_warm_process_starts_do_not_wait(place):
    one = place(warm=False)
    start(one, 0)
    assert Engine.agents[0].starts() == [("p0", None)]
    assert "warm" not in [kind for kind, _ in Engine.agents[0].told]


@pytest.mark.parametrize("framework", ["tensorflow", "jax", "torch"])
def test_starts_wait_for_the_import_and_are_forked(place, framework):
    one = place(framework=framework)
    [(kind, warm)] = Engine.agents[0].told
    modules = ["jax", "keras"] if framework == "jax" else [framework]
    assert (kind, warm["key"], warm["argv"][3:]) == ("warm", WARM, modules)
    start(one, 0)
    start(one, 1)
    assert Engine.agents[0].starts() == []
    says(one, "warmed", key=WARM, pid=1, seconds=2.0)
    assert Engine.agents[0].starts() == [("p0", WARM), ("p1", WARM)]
    assert one.warm == {"seconds": 2.0, "pid": 1}
    start(one, 0)
    assert Engine.agents[0].starts()[-1] == ("p0", WARM)
    assert [event["type"] for event in one.heard] == ["warmed"]


def test_what_an_import_reads_starts_cold_at_once(place):
    one = place()
    start(one, 0, TF_CPP_MAX_VLOG_LEVEL="3")
    assert Engine.agents[0].starts() == [("p0", None)]


@pytest.mark.parametrize(
    "event",
    [
        {"type": "cooled", "key": WARM, "error": "no memory"},
        {"type": "refused", "key": WARM, "command": "warm", "error": "no memory"},
    ],
)
def test_without_a_warm_process_in_the_end_the_starts_are_cold(place, event):
    one = place()
    start(one, 0)
    says(one, **{"kind": event.pop("type"), **event})
    assert Engine.agents[0].starts() == [("p0", None)]
    assert one.warm == {"error": "no memory"}
    start(one, 1)
    assert Engine.agents[0].starts()[-1] == ("p1", None)


def test_a_start_that_waits_is_withdrawn(place):
    one = place()
    start(one, 0)
    start(one, 1)
    assert one.withdraw("p0")
    assert not one.withdraw("p0")
    says(one, "warmed", key=WARM, pid=1, seconds=2.0)
    assert Engine.agents[0].starts() == [("p1", WARM)]
    assert not one.withdraw("p1")


def test_new_ports_are_held_before_the_old_ones_are_given_back(place):
    one = place(warm=False)
    assert one.spec == ClusterSpec.place(one.config.members, ["here:1000", "here:1001"])
    asyncio.run(one.rebind())
    assert one.spec == ClusterSpec.place(one.config.members, ["here:1002", "here:1003"])
    released = [fields["ports"] for kind, fields in Engine.agents[0].told if kind == "release"]
    assert released == [[1000], [1001]]


def test_a_lost_agent_is_replaced_at_the_next_chance(place):
    one = place()
    says(one, "warmed", key=WARM, pid=1, seconds=2.0)
    Engine.agents[0].lost()
    assert one.broken
    assert one.gone == [one.config.members]
    assert "ended" in one.warm["error"]
    Engine.full = True
    with pytest.raises(SupervisorError, match="no ports"):
        asyncio.run(one.rebind())
    assert one.broken
    Engine.full = False
    asyncio.run(one.rebind())
    assert not one.broken
    assert one.channels == (Engine.agents[-1],)
    assert one.warm == {}
    start(one, 0)
    says(one, "warmed", key=WARM, pid=2, seconds=1.0)
    assert Engine.agents[-1].starts() == [("p0", WARM)]


def test_starts_that_wait_for_a_lost_agent_are_not_kept_for_the_next(place):
    one = place()
    start(one, 0)
    Engine.agents[0].lost()
    asyncio.run(one.rebind())
    says(one, "warmed", key=WARM, pid=2, seconds=1.0)
    assert Engine.agents[-1].starts() == []
