"""The Ray engine on a real Ray with three nodes; `make ray` runs it."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import sweeping
from accidents import (
    LEASE_SECONDS,
    LOST,
    agent,
    had,
    kill,
    link,
    owned,
    way_back,
    way_there,
    worker,
)
from fakes.conformance import CHECKS, Subject
from processes import children, command, eventually, labelled, variables
from pythons import apart, elsewhere, program
from raylets import GPUS
from training import assert_it_is_found_elsewhere_on_one, trained

from mwmagic import Cluster
from mwmagic.engines import CODE, engine_for
from mwmagic.engines.channel import Channel
from mwmagic.errors import ClusterError, SupervisorError
from mwmagic.model.cluster import make_tasks
from mwmagic.model.findings import Symptom
from mwmagic.model.machine import Machine
from mwmagic.model.options import ClusterOptions

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("rays", "nothing_survives", "idle")]

TENSORFLOW = Path(__file__).parents[2] / ".venv"
"""An environment with TensorFlow and without Ray: only the bridge needs that."""

PYTHON = str(TENSORFLOW / "bin/python")
"""Its Python, for the tasks."""


@pytest.fixture
def idle(rays):
    """Fail a test that leaves anything on the nodes, or of their resources."""
    yield
    eventually(lambda: not rays.groups(), rays.groups)
    eventually(lambda: not rays.left(), rays.left)
    eventually(rays.ready, rays.groups)


def declared(rays, **options):
    given = {"directory": "/", "engine": "ray", "address": rays.address, **options}
    return engine_for(ClusterOptions(**given))


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 120))


async def ask(engine, tasks=2, avoid=(), notify=lambda _: None):
    return await engine.allocate(make_tasks(tasks), avoid=frozenset(avoid), notify=notify)


@asynccontextmanager
async def allocated(rays, tasks=2, **options):
    """Allocate nodes, and give them back."""
    engine = declared(rays, **options)
    try:
        yield engine, await ask(engine, tasks)
    finally:
        await engine.release()


def names(hosts):
    return {host.name for host in hosts}


async def ended(channel):
    """Wait until an agent is lost."""
    lost = asyncio.Event()
    channel.lost = lost.set
    await lost.wait()


async def looked(host):
    channel = await Channel.open(host)
    answer = await channel.request("look")
    await channel.close()
    return Machine.read(answer["machine"])


def host_of(rays, name):
    return next(host for host in rays.network.hosts if host.name == name)


def kill_actor(rays, name):
    """Kill the process of Ray's that holds the agent on a node."""
    [actor] = [p for p in host_of(rays, name).processes() if "ray::Holder" in command(p.pid)]
    actor.kill()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_engine_conforms(check, rays, tmp_path):
    def make():
        return declared(rays, nodes=2)

    run(check(Subject(make, str(tmp_path), lose=lambda host, _: kill_actor(rays, host.name))))


def test_tasks_are_packed_and_an_agent_sees_all_gpus_of_its_tasks(rays):
    async def test():
        said = []
        engine = declared(rays, gpus=1)
        try:
            hosts = await ask(engine, 3, notify=said.append)
            assert sorted(host.slots for host in hosts) == [1, 2]
            assert names(hosts) <= {host.name for host in rays.network.hosts}
            assert said[-1].startswith("nodes of Ray and their tasks: mw")
            for host in hosts:
                assert len((await looked(host)).visible.split(",")) == host.slots
        finally:
            await engine.release()

    run(test())


def test_what_a_task_needs_is_written_in_resources_of_ray(rays):
    async def test():
        async with allocated(rays, 4, scheduler=["CPU=0.5", "GPU=0.5"]) as (_, [host]):
            [group] = rays.groups()
            assert group["bundles"][3] == {"CPU": 0.5, "GPU": 0.5}
            assert host.slots == 4
            assert sorted(set((await looked(host)).visible.split(","))) == ["0", "1"][:GPUS]

    run(test())


def test_workers_get_the_environment_of_their_node_and_not_of_an_actor(rays):
    async def test():
        async with allocated(rays, 1) as (_, [host]):
            channel = await Channel.open(host)
            [agent] = [one for one in rays.left() if "agent/__main__.py" in one]
            pid = next(
                p.pid for p in host_of(rays, host.name).processes() if command(p.pid) == agent
            )
            own = variables(pid)
            assert not [one for one in own if one.startswith(b"OMP_NUM_THREADS=")]
            assert b"CUDA_VISIBLE_DEVICES=" in own
            await channel.close()

    run(test())


def test_a_request_that_waits_tells_why_and_can_be_cancelled(rays):
    async def test():
        engine, said = declared(rays, nodes=4), asyncio.Queue()
        waiting = asyncio.create_task(ask(engine, 4, notify=said.put_nowait))
        words = r"Ray waits \(\w+\) for 4 nodes, 1 CPU each; free: 6 of 6 CPU"
        assert re.fullmatch(words, await said.get())
        assert len(rays.groups()) == 1
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not engine.helpers
        eventually(lambda: not rays.groups(), rays.groups)

    run(test())


def test_why_there_is_no_ray_is_reported(rays):
    async def test():
        engine = declared(rays, address="nonsense")
        with pytest.raises(ClusterError, match=r"Ray at 'nonsense': .*nonsense"):
            await ask(engine)
        assert not engine.helpers

    run(test())


def test_why_an_agent_does_not_start_is_reported(rays):
    async def test():
        async with allocated(rays, 1, python="/no/python") as (_, [host]):
            with pytest.raises(
                SupervisorError, match=r"the agent on mw.* ended: .*--python"
            ) as one:
                await Channel.open(host)
            assert "/no/python" in str(one.value)

    run(test())


def test_a_bridge_that_is_killed_is_reported_and_its_nodes_are_not_to_blame(rays):
    async def test():
        async with allocated(rays, 3, nodes=3) as (engine, hosts):
            channels = await asyncio.gather(*map(Channel.open, hosts))
            [bridge] = engine.helpers
            os.kill(bridge, signal.SIGKILL)
            await asyncio.gather(*map(ended, channels))
            eventually(lambda: not rays.left(), rays.left)
            assert (await engine.why(hosts[0])).startswith("the process that talks to Ray ended")
            assert names(await ask(engine, 3, avoid=names(hosts))) == names(hosts)

    run(test())


def test_a_lost_node_is_taken_again_if_there_is_no_other_and_avoided_no_more(rays):
    async def test():
        async with allocated(rays, 3, nodes=3) as (engine, hosts):
            channels = await asyncio.gather(*map(Channel.open, hosts))
            kill_actor(rays, hosts[0].name)
            await ended(channels[0])
            said = []
            assert names(await ask(engine, 3, {hosts[0].name}, said.append)) == names(hosts)
            assert any(text.startswith("Ray waits") for text in said)
            assert not engine._bad, "the next request waits for no others"

    run(test())


def test_nodes_are_ready_before_a_silent_one_is_lost(rays):
    async def test():
        async with allocated(rays, nodes=2) as (engine, hosts):
            [other] = {host.name for host in rays.network.hosts} - names(hosts)
            channels = await asyncio.gather(*map(Channel.open, hosts))
            kept, lost = hosts
            engine.prepare({lost.name})
            eventually(lambda: rays.left(host_of(rays, other)), "an agent")
            assert len(rays.groups()) == 2
            engine.prepare(())
            eventually(lambda: len(rays.groups()) == 1, rays.groups)
            eventually(lambda: not rays.left(host_of(rays, other)), "no agent")
            assert all([await channel.hold(1) for channel in channels])
            engine.prepare({lost.name})
            eventually(lambda: rays.left(host_of(rays, other)), "an agent")
            [ready] = {one["name"] for one in rays.groups()} - {"mwmagic-1"}
            await channels[1].close()
            assert names(await ask(engine, avoid={lost.name})) == {kept.name, other}
            assert [one["name"] for one in rays.groups()] == [ready]
            await channels[0].close()

    run(test())


TASK = """
import json, os, socket, time
print("on", socket.gethostname(), os.environ["TF_CONFIG"], flush=True)
while not os.path.exists("go"):
    time.sleep(0.05)
"""


def test_each_cluster_of_a_sweep_has_one_group_for_all_its_trials(rays, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    where = {"engine": "ray", "address": rays.address, "python": PYTHON}
    sweep = sweeping.begun("-n", "2", "--parallel", "2", "main.py", "units=1,2,3,4", **where)
    sweeping.two_are_going()
    _, groups = sweeping.ended(sweep, lambda: [one["placement_group_id"] for one in rays.groups()])
    assert len(groups) == 2


def places(training):
    """Return the hosts that the latest attempt's tasks print, in whole lines."""
    status = training.status()
    folder = Path(status.directory, f"attempt-{status.attempt}")
    logs = [path.read_text() for path in folder.glob("*.log")]
    return {log.split()[1] for log in logs if log.startswith("on ") and log.endswith("\n")}


def test_a_cluster_moves_off_a_node_whose_lease_ends(rays, cluster, tmp_path):
    tmp_path.joinpath("task.py").write_text(TASK)
    options = {"address": rays.address, "python": PYTHON, "nodes": 2}
    one = cluster(2, engine="ray", restarts=1, lease=LEASE_SECONDS, **options)
    before = {machine.name for machine in one.machines}
    training = one.run("task.py")
    eventually(lambda: len(places(training)) == 2)
    assert places(training) == before
    lost = host_of(rays, sorted(before)[1])
    lost.cut()
    try:
        eventually(lambda: training.status().attempt == 2 and len(places(training)) == 2, "restart")
        assert lost.name not in places(training)
        eventually(lambda: not rays.left(lost), lambda: rays.left(lost))
    finally:
        lost.mend()
    tmp_path.joinpath("go").touch()
    training.wait(timeout=120)


def test_a_supervisor_that_is_killed_leaves_nothing(rays, cluster, tmp_path):
    tmp_path.joinpath("task.py").write_text(TASK)
    one = cluster(2, engine="ray", address=rays.address, python=PYTHON, nodes=2)
    training = one.run("task.py")
    eventually(lambda: len(places(training)) == 2)
    # A child of its own is called the same until it has become another program.
    [supervisor] = [pid for pid in children(os.getpid()) if "mwmagic.supervisor" in command(pid)]
    assert "_raylet" not in Path(f"/proc/{supervisor}/maps").read_text()
    os.kill(supervisor, signal.SIGKILL)
    eventually(lambda: not rays.left(), rays.left)
    eventually(lambda: not rays.groups(), rays.groups)


# Accidents: what is told, that a restart waits for the end of what was, and what is left.


def actor(host, mark):
    """What holds the agent."""
    kill([one.pid for one in host.processes() if "ray::Holder" in command(one.pid)])


def bridge(host, mark):
    """What talks to Ray, here."""
    kill([pid for pid in labelled() if "driver" in command(pid)])


def daemon(host, mark):
    """Ray's process on the node, with which its others end."""
    kill([one.pid for one in host.processes() if one.name() == "raylet"])


@pytest.mark.parametrize(
    ("accident", "symptoms"),
    [
        (worker, [Symptom.KILLED]),
        (agent, LOST),
        (actor, LOST),
        (daemon, LOST),
        (bridge, LOST),
        (link, LOST),
        (way_there, LOST),
        (way_back, LOST),
    ],
    ids=lambda one: getattr(one, "__name__", None),
)
def test_a_run_goes_on_after_an_accident(rays, cluster, accident, symptoms):
    options = {"address": rays.address, "python": PYTHON, "nodes": 2}
    one = cluster(2, engine="ray", restarts=1, lease=LEASE_SECONDS, **options)
    told = had(one, rays.network.hosts, accident)
    assert told.finding.symptom in symptoms
    stays = accident in (worker, bridge)
    assert stays or told.hosts["struck"] not in told.hosts["after"].values()


def test_nothing_is_left_when_the_kernel_is_killed(rays, cluster):
    options = {"engine": "ray", "address": rays.address, "python": PYTHON, "nodes": 2}
    with owned(rays.network.hosts, options) as kernel:
        os.kill(kernel, signal.SIGKILL)


@pytest.mark.tensorflow
def test_a_training_across_nodes_gives_the_numbers_of_one_machine(rays, tmp_path, monkeypatch):
    """One has another clock, one TensorFlow elsewhere, and one neither this disk nor the code."""
    monkeypatch.chdir(tmp_path)
    # A notebook's Python has a framework besides Ray; here it only must be found.
    monkeypatch.setattr(sys, "path", [*sys.path, *map(str, TENSORFLOW.glob("lib/*/site-packages"))])
    here = {"hosts": ["localhost"], "scheduler": ["{python}", "-"]}
    with Cluster(3, engine="command", python=PYTHON, warm=False, **here) as cluster:
        _, expected = trained(cluster)
    _, second, third = rays.network.hosts
    lines = [elsewhere(rays.folder, second, PYTHON), apart(third, [tmp_path, CODE], PYTHON)]
    options = {"address": rays.address, "python": program(rays.folder, "\n".join(lines), PYTHON)}
    with Cluster(3, engine="ray", nodes=3, warm=False, **options) as cluster:
        hosts, weights = trained(cluster)
        assert_it_is_found_elsewhere_on_one(cluster.latest)
    assert set(hosts) == {host.name for host in rays.network.hosts}
    assert weights == expected
