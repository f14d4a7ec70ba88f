"""Starts that wait for a warm process, and machines that go, on machines that are made up."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from pathlib import Path

import pytest
from fakes import FakeEngine, FakeMachine
from fakes import agent as agents

from mwmagic.agent.wire import AGENT_LOST
from mwmagic.engines import channel
from mwmagic.errors import ClusterError, SupervisorError
from mwmagic.model.cluster import ClusterSpec
from mwmagic.model.findings import Symptom
from mwmagic.model.messages import Launch, Start
from mwmagic.model.options import ClusterOptions
from mwmagic.supervisor import pool as module
from mwmagic.supervisor.node import StartCommand
from mwmagic.supervisor.pool import MachinePool
from mwmagic.supervisor.program import TaskProgram


class Scene:
    """A place on fake machines, what it reported, and what its agents received."""

    def __init__(self, machines, tasks=2, *, config=(), **engine):
        self.machines = machines
        self.engine = FakeEngine(machines, forever, **engine)
        options = dict(config)
        warm, env = options.pop("warm", False), options.pop("env", {})
        self.heard, self.losses = asyncio.Queue(), asyncio.Queue()
        self.options = ClusterOptions(tasks, name="c", directory="/", **options)
        self.told = Start(self.options, env=env, warm=warm)
        self.changes = asyncio.Queue()
        told = (one.put_nowait for one in (self.heard, self.losses))
        self.pool = MachinePool(self.told, *told, lambda: self.changes.put_nowait(1), self.engine)

    async def __aenter__(self):
        await self.pool.open()
        return self

    async def __aexit__(self, *_):
        await self.pool.close()

    def start(self, index, source=__file__, **env):
        task = self.options.members[index]
        program = TaskProgram(Launch("x", env=env, given=env, cwd="/"), Path(source))
        file = f"/dev/null/{index}"
        self.pool.start(task, StartCommand(f"p{index}", program, {}, file, file, 0, 0))

    async def until(self, kind, **fields):
        """Return the next event that is so."""
        while True:
            event = await self.heard.get()
            if event["type"] == kind and fields.items() <= event.items():
                return event

    def states(self):
        return [(one.name, one.tasks, one.warm.state, one.lost) for one in self.pool.machines]


async def forever(worker):
    await worker.hang()


def made(*names, **options):
    return [FakeMachine(name, **{"shared": False, **options}) for name in names]


def on(scene):
    """Have a coroutine function run with a scene."""

    async def test(body):
        async with scene() as one:
            await body(one)

    return lambda body: asyncio.run(asyncio.wait_for(test(body), 30))


WARMING = {"warm": True}


def test_without_a_warm_process_starts_do_not_wait():
    @on(lambda: Scene(made("a")))
    async def _(scene):
        scene.start(0)
        assert not (await scene.until("started"))["warm"]
        assert scene.states() == [("a", ("worker:0", "worker:1"), "off", False)]


@pytest.mark.parametrize("code", ["print(", "return 1", "x = 1\0", "# coding: nonsense\n"])
def test_a_program_that_does_not_compile_waits_for_no_import(tmp_path, code):
    file = tmp_path / "main.py"
    file.write_text(code)

    @on(lambda: Scene(made("a", warm_seconds=25), config=WARMING))
    async def _(scene):
        assert scene.states()[0][2] == "importing"
        scene.start(0, file)
        started = await scene.until("started")
        assert not started["warm"]
        assert started["cold"] is None
        assert scene.states()[0][2] == "importing"


@pytest.mark.parametrize("framework", ["tensorflow", "jax", "torch"])
def test_starts_wait_for_the_import_and_are_forked(framework):
    config = {"warm": True, "framework": framework}

    @on(lambda: Scene(made("a", warm_seconds=0.05), config=config))
    async def _(scene):
        assert scene.states()[0][2] == "importing"
        scene.start(0)
        scene.start(1)
        warmed = await scene.heard.get()
        assert (warmed["type"], warmed["key"]) == ("warmed", "warm-1")
        started = [await scene.until("started") for _ in range(2)]
        assert [(one["process"], one["warm"]) for one in started] == [("p0", True), ("p1", True)]
        [machine] = scene.pool.machines
        assert (machine.warm.state, machine.warm.seconds) == ("ready", 0.05)
        assert machine.warm.pid == warmed["pid"]


def test_each_machine_has_a_warm_process_of_its_own():
    fast, slow = made("fast") + made("slow", warm_seconds=0.1)

    @on(lambda: Scene([fast, slow], config=WARMING))
    async def _(scene):
        await scene.until("warmed")
        assert [state for _, _, state, _ in scene.states()] == ["ready", "importing"]
        scene.start(1)
        scene.start(0)
        assert (await scene.heard.get())["process"] == "p0"
        assert (await scene.until("started", process="p1"))["warm"]
        assert [state for _, _, state, _ in scene.states()] == ["ready", "ready"]


@pytest.fixture
def zygotes(monkeypatch):
    """Note what processes are to be forked from, by their names."""
    found = {}

    def start(agent, command):
        found[command["process"]] = command["zygote"]
        agents.FakeAgent.start(agent, command)

    monkeypatch.setitem(agents._HANDLERS, "start", start)
    return found


def test_without_a_warm_process_starts_are_cold():
    @on(lambda: Scene(made("a")))
    async def _(scene):
        scene.start(0)
        assert not (await scene.until("started"))["warm"]
        [machine] = scene.pool.machines
        assert machine.warm.state == "off"


def test_a_process_whose_packages_were_upgraded_is_started_again(zygotes):
    @on(lambda: Scene(made("a", warm_seconds=60), config={**WARMING, "preload": ("pandas",)}))
    async def _(scene):
        [agent] = scene.machines[0].agents
        agent.emit("warmed", key="warm-1", pid=7, seconds=1.0, reads=[], sets={}, left=[])
        await scene.until("warmed")
        agent.emit("stale", key="warm-1")
        await scene.until("stale")
        [machine] = scene.pool.machines
        assert machine.warm.state == "importing"
        scene.start(0)
        agent.emit(
            "warmed", key="warm-2", pid=9, seconds=1.0, reads=["PANDAS_SIZE"], sets={}, left=[]
        )
        assert (await scene.until("started"))["warm"]
        assert zygotes == {"p0": "warm-2"}
        scene.start(1, PANDAS_SIZE="3")
        assert not (await scene.until("started", process="p1"))["warm"], "it imports pandas again"


def test_a_warm_process_that_is_killed_is_replaced():
    @on(lambda: Scene(made("a", warm_seconds=60), config=WARMING))
    async def _(scene):
        [agent] = scene.machines[0].agents
        agent.emit("warmed", key="warm-1", pid=7, seconds=1.0, reads=[], sets={}, left=[])
        await scene.until("warmed")
        agent.emit("cooled", key="warm-1", error="it was killed by signal 9", module=None)
        await scene.until("cooled")
        [machine] = scene.pool.machines
        assert machine.warm.state == "importing"
        agent.emit("cooled", key="warm-2", error="it was killed by signal 9", module=None)
        await scene.until("cooled")
        [machine] = scene.pool.machines
        assert machine.warm.state == "failed", "while it imports, another one would be killed too"
        scene.start(0)
        started = await scene.until("started")
        assert (started["warm"], started["cold"].symptom) == (False, Symptom.COLD_FAILED)


def test_what_an_import_reads_starts_cold_at_once():
    @on(lambda: Scene(made("a", warm_seconds=60), config=WARMING))
    async def _(scene):
        scene.start(0, TF_CPP_MAX_VLOG_LEVEL="3")
        assert not (await scene.until("started"))["warm"]


@pytest.mark.parametrize(
    "event",
    [
        {"type": "cooled", "key": "warm-1", "error": "no memory", "module": None},
        {
            "type": "refused",
            "key": "warm-1",
            "command": "warm",
            "reason": None,
            "error": "no memory",
        },
    ],
)
def test_without_a_warm_process_in_the_end_the_starts_are_cold(event):
    @on(lambda: Scene(made("a", warm_seconds=60), config=WARMING))
    async def _(scene):
        scene.start(0)
        [agent] = scene.machines[0].agents
        agent.emit(**{"kind" if name == "type" else name: at for name, at in event.items()})
        assert not (await scene.until("started"))["warm"]
        [machine] = scene.pool.machines
        assert (machine.warm.state, machine.warm.error) == ("failed", "no memory")
        scene.start(1)
        assert not (await scene.until("started"))["warm"]


def test_a_start_that_waits_is_cancelled():
    @on(lambda: Scene(made("a", warm_seconds=0.05), config=WARMING))
    async def _(scene):
        scene.start(0)
        scene.start(1)
        assert scene.pool.withdraw("p0")
        assert not scene.pool.withdraw("p0")
        assert (await scene.until("started"))["process"] == "p1"
        assert not scene.pool.withdraw("p1")


def test_new_ports_are_held_before_the_old_ones_are_given_back():
    @on(lambda: Scene(made("a", "b")))
    async def _(scene):
        pool, members = scene.pool, scene.options.members
        assert pool.spec == ClusterSpec.of(members, ["a:20000", "b:20000"])
        await pool.rebind()
        assert pool.spec == ClusterSpec.of(members, ["a:20001", "b:20001"])
        held = {20000, 20001}
        for machine in scene.machines:
            [agent] = machine.agents
            while agent.held == held:  # noqa: ASYNC110 - a release has no answer
                await asyncio.sleep(0)
            assert agent.held == {20001}


def test_a_coordinator_has_a_port_beside_the_first_task():
    @on(lambda: Scene(made("a", "b"), 1, config={"coordinator": True, "ps": 1}))
    async def _(scene):
        hosts = [address.split(":")[0] for address in scene.pool.spec.addresses.values()]
        assert list(map(str, scene.pool.spec.tasks)) == ["chief:0", "worker:0", "ps:0"]
        assert hosts == ["a", "a", "b"]


def test_tasks_are_spread_by_slots():
    machines = made("a", slots=1) + made("b", slots=3) + made("c", slots=4)

    @on(lambda: Scene(machines, tasks=6))
    async def _(scene):
        counts = [len(machine.tasks) for machine in scene.pool.machines]
        assert counts == [1, 3, 2]

    with pytest.raises(ClusterError, match="no room for 9 tasks on 3 machines with 8 slots"):
        on(lambda: Scene(machines, tasks=9))(None)
    assert not any(machine.agents for machine in machines)


def test_a_lost_machine_is_reported_once_with_its_tasks_and_replaced_at_the_next_chance():
    @on(lambda: Scene(made("a", "b", "c"), most=2, config=WARMING))
    async def _(scene):
        pool, (worker0, worker1) = scene.pool, scene.options.members
        scene.start(0)
        await scene.until("started")
        old = pool.node(worker0).channel
        scene.machines[1].lose("preempted")
        loss = await scene.losses.get()
        assert (loss.host, loss.tasks, loss.why) == ("b", (worker1,), "preempted")
        assert pool.broken
        assert [lost for *_, lost in scene.states()] == [False, True]
        assert "ended" in pool.machines[1].warm.error
        await pool.rebind()
        assert not pool.broken
        assert scene.engine.allocations == [frozenset(), {"b"}]
        assert [name for name, *_ in scene.states()] == ["a", "c"]
        assert pool.node(worker0).channel is old, "a machine that stays keeps its agent"
        assert pool.machines[0].warm.state == "ready", "and its warm process"
        assert pool.spec.addresses[worker1] == "c:20000"
        assert scene.losses.empty()


def test_a_machine_whose_agent_says_that_it_leaves_is_replaced_before_its_line_ends():
    @on(lambda: Scene(made("a", "b", "c"), most=2))
    async def _(scene):
        [leaving] = scene.machines[1].agents
        said = {"command": "start", "process": "p1", "error": "which got SIGTERM"}
        leaving.emit("refused", reason=AGENT_LOST, **said)
        await scene.until("refused")
        assert scene.pool.broken
        await scene.pool.rebind()
        assert not scene.pool.broken
        assert scene.engine.allocations == [frozenset(), {"b"}]
        assert [(name, lost) for name, *_, lost in scene.states()] == [("a", False), ("c", False)]
        assert scene.losses.empty()


def test_an_engine_prepares_for_the_loss_of_a_silent_machine(monkeypatch):
    monkeypatch.setattr(channel, "OVERDUE_SECONDS", 0.1)
    monkeypatch.setattr(channel, "MARGIN_SECONDS", 0.1)

    @on(lambda: Scene(made("a", "b", "c"), most=2, config={"lease": 0.3}))
    async def _(scene):
        heard = asyncio.Queue()
        scene.engine.prepare = heard.put_nowait
        scene.machines[1].cut()
        assert await heard.get() == {"b"}
        assert not scene.pool.broken
        await scene.losses.get()
        await scene.pool.rebind()
        assert heard.empty(), "what was prepared is not given back before it is used"
        assert scene.engine.allocations == [frozenset(), {"b"}]


def test_an_engine_whose_preparation_raises_loses_nothing_by_it(monkeypatch, capsys):
    monkeypatch.setattr(channel, "OVERDUE_SECONDS", 0.1)
    monkeypatch.setattr(channel, "MARGIN_SECONDS", 0.1)

    @on(lambda: Scene(made("a", "b"), config={"lease": 0.3}))
    async def _(scene):
        scene.engine.prepare = lambda unresponsive: 1 / 0
        scene.machines[1].cut()
        assert (await scene.losses.get()).host == "b"

    assert "ZeroDivisionError" in capsys.readouterr().err


def test_a_machine_that_does_not_answer_is_avoided_at_the_next_chance():
    @on(lambda: Scene(made("a", "b", "c"), most=1))
    async def _(scene):
        a, b, _ = scene.machines
        allocate = scene.engine.allocate

        async def late(tasks, **options):
            hosts = await allocate(tasks, **options)
            b.lost = True
            return hosts

        scene.engine.allocate = late
        a.lose()
        await scene.losses.get()
        await scene.pool.rebind()
        assert not scene.pool.broken
        assert scene.engine.allocations[2] == {"a", "b"}
        assert [name for name, *_ in scene.states()] == ["c"]


@pytest.mark.parametrize("step", ["_hold", "_share_out"])
def test_a_machine_that_is_lost_while_another_is_replaced_is_replaced_too(step):
    @on(lambda: Scene(made("a", "b", "c", "d"), most=2))
    async def _(scene):
        a, b, *_ = scene.machines
        done = getattr(scene.pool, step)

        async def late():
            await done()
            if not b.lost:
                b.lose()
                await scene.losses.get()

        setattr(scene.pool, step, late)
        a.lose()
        await scene.losses.get()
        await scene.pool.rebind()
        assert not scene.pool.broken
        assert [name for name, *_ in scene.states()] == ["c", "d"]


def test_a_lost_machine_is_tried_until_it_answers_if_there_is_no_other(monkeypatch):
    monkeypatch.setattr(module, "REGAIN_SECONDS", 0.01)

    @on(lambda: Scene(made("a"), most=1))
    async def _(scene):
        [a] = scene.machines
        a.reboot()
        await scene.losses.get()
        host, shown = scene.engine.host, []

        def away(machine):
            a.lost = len(shown) < 3
            shown.append(scene.pool.placing.message)
            return host(machine)

        async def allocate(tasks, *, avoid, notify):
            return [away(a)]

        scene.engine.allocate = allocate
        await scene.pool.rebind()
        assert not scene.pool.broken
        assert shown == ["", *["a does not answer; trying again"] * 3]


def test_a_restart_fails_if_no_machine_answers_in_time(monkeypatch):
    monkeypatch.setattr(module, "REGAIN_LIMIT_SECONDS", 0.0)

    @on(lambda: Scene(made("a"), most=1))
    async def _(scene):
        [a] = scene.machines
        a.reboot()
        await scene.losses.get()
        allocate = scene.engine.allocate

        async def late(tasks, **options):
            hosts = await allocate(tasks, **options)
            a.lost = True
            return hosts

        scene.engine.allocate = late
        with pytest.raises(SupervisorError, match="a does not answer"):
            await scene.pool.rebind()
        assert scene.pool.broken


def test_starts_that_wait_for_a_lost_machine_are_not_kept_for_the_next():
    @on(lambda: Scene(made("a", "b", warm_seconds=0.05), most=1, config=WARMING))
    async def _(scene):
        scene.start(0)
        scene.machines[0].lose()
        await scene.losses.get()
        await scene.pool.rebind()
        await scene.until("warmed")
        scene.start(1)
        assert (await scene.until("started"))["process"] == "p1"
        assert not scene.pool.withdraw("p0")


def test_a_scheduler_that_does_not_say_why_keeps_no_loss_back(monkeypatch, capsys):
    monkeypatch.setattr(module, "WHY_SECONDS", 0.01)

    async def never(_):
        await asyncio.Event().wait()

    async def broken(_):
        raise KeyError("squeue")

    for why in (never, broken):

        @on(lambda: Scene(made("a", "b")))
        async def _(scene, why=why):
            scene.engine.why = why
            scene.machines[0].lose()
            assert (await scene.losses.get()).why is None

    assert "KeyError: 'squeue'" in capsys.readouterr().err


def test_the_scheduler_is_heard_while_an_allocation_waits():
    @on(lambda: Scene(made("a"), words=["job 7 is pending (Resources)"]))
    async def _(scene):
        assert scene.pool.placing.message == "job 7 is pending (Resources)"


def test_what_was_opened_is_closed_when_a_machine_fails():
    scene = Scene(made("a", "b"))
    scene.machines[1].lost = True
    scene.engine.allocate = lambda *_, **__: everything()

    async def everything():
        return [scene.engine.host(machine) for machine in scene.machines]

    async def test():
        with pytest.raises(SupervisorError, match="b does not answer"):
            await scene.pool.open()

    asyncio.run(asyncio.wait_for(test(), 30))
    assert scene.engine.released == 1
    assert not scene.machines[0].agents


def test_what_starts_after_an_update_is_prepared_as_that_says():
    @on(lambda: Scene(made("here")))
    async def _(scene):
        legacy = dataclasses.replace(scene.options, keras="legacy")
        scene.pool.declared = dataclasses.replace(scene.told, options=legacy)
        scene.start(0)
        while not scene.machines[0].workers:  # noqa: ASYNC110 - of the fake machine
            await asyncio.sleep(0)
        [worker] = scene.machines[0].workers
        assert worker.env["TF_USE_LEGACY_KERAS"] == "1"


def test_each_machine_is_shared_out_between_its_own_tasks():
    machines = made("big", processors=8, gpus=4) + made("small", processors=3)

    @on(lambda: Scene(machines, tasks=4))
    async def _(scene):
        shares = scene.pool.shares
        names = ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES")
        assert [tuple(share.get(name) for name in names) for share in shares.values()] == [
            ("4", "0,1"),
            ("4", "2,3"),
            ("1", None),
            ("1", None),
        ]
        scene.start(1)
        while not scene.machines[0].workers:  # noqa: ASYNC110 - of the fake machine
            await asyncio.sleep(0)
        [worker] = scene.machines[0].workers
        assert worker.env["CUDA_VISIBLE_DEVICES"] == "2,3"


def test_another_machine_has_its_own_choice_of_gpus():
    there, other = made("a", "b", gpus=4)
    there.has = dataclasses.replace(there.has, visible="2,3")
    config = {"env": {"CUDA_VISIBLE_DEVICES": "0"}}

    @on(lambda: Scene([there, other], tasks=2, config=config))
    async def _(scene):
        chosen = [share["CUDA_VISIBLE_DEVICES"] for share in scene.pool.shares.values()]
        assert chosen == ["2,3", "0,1,2,3"]


def test_gpus_are_missed_where_the_tasks_are():
    machines = made("a", gpus=2) + made("b", gpus=1)
    with pytest.raises(ClusterError, match=r"on b: 2 tasks .* 2 GPUs, and there are 1 \(0\)"):
        on(lambda: Scene(machines, tasks=4, config={"gpus": 1}))(None)
    assert not any(machine.agents for machine in machines)


def test_a_driver_that_hangs_delays_the_starts_and_not_the_cluster(monkeypatch):
    monkeypatch.setattr(module, "GPU_LOOK_SECONDS", 0.01)
    machines = made("a", look_seconds=0.1, gpus=2)

    @on(lambda: Scene(machines, config=WARMING))
    async def _(scene):
        assert scene.pool.shares == {}
        assert scene.pool.machines[0].warm.state == "off"
        scene.start(0)
        await scene.changes.get()
        assert scene.pool.shares["worker:1"]["CUDA_VISIBLE_DEVICES"] == "1"
        assert (await scene.until("started"))["warm"]
        assert machines[0].workers[0].env["CUDA_VISIBLE_DEVICES"] == "0"


def test_a_driver_that_hangs_is_waited_for_where_gpus_are_asked_for(monkeypatch):
    monkeypatch.setattr(module, "GPU_LOOK_SECONDS", 0.01)

    @on(lambda: Scene(made("a", look_seconds=0.1, gpus=2), config={"gpus": 1}))
    async def _(scene):
        assert scene.pool.shares["worker:1"]["CUDA_VISIBLE_DEVICES"] == "1"


def test_what_an_agent_leaves_behind_is_ended_but_not_the_engines_helpers(monkeypatch):
    ended = []
    monkeypatch.setattr(module, "end_orphans", ended.append)

    async def hosts(*_, **__):
        return [dataclasses.replace(scene.engine.host(one), here=True) for one in scene.machines]

    scene = Scene(made("a", "b"))
    scene.engine.helpers = [41, 42]
    scene.engine.allocate = hosts

    @on(lambda: scene)
    async def _(scene):
        scene.machines[0].lose()
        await scene.losses.get()
        assert ended == [[41, 42]]


def test_a_lost_machine_elsewhere_leaves_nothing_behind_here(monkeypatch):
    monkeypatch.setattr(module, "end_orphans", lambda _: pytest.fail("another machine's"))

    @on(lambda: Scene(made("a", "b")))
    async def _(scene):
        scene.machines[0].lose()
        await scene.losses.get()


def test_a_file_of_another_disk_is_pulled_when_it_is_needed(tmp_path):
    path = str(tmp_path / "stacks")
    far, near = made("far") + made("near", shared=True)

    @on(lambda: Scene([far, near]))
    async def _(scene):
        there = scene.pool.node(scene.options.members[0]).disk.there(path)
        assert there.startswith("/brought/")
        far.disk[there] = bytearray(b"stack")
        for task in scene.options.members:
            await scene.pool.node(task).pull(path)
        assert (tmp_path / "stacks").read_bytes() == b"stack"


# Machines that cannot work together are refused before anything starts.


def refusal(machines, **config):
    with pytest.raises(ClusterError) as caught:
        on(lambda: Scene(machines, tasks=len(machines), config=config))(None)
    assert not any(machine.agents for machine in machines)
    return str(caught.value)


def obstacle(why, *at, error="Name or service not known"):
    return {"why": why, "at": list(at), "error": error}


def test_a_pair_that_cannot_connect_is_named_with_the_reason():
    a, b = made("a", "b")
    a.unreachable = {"b": obstacle("silent", "10.0.0.9", error="timed out")}
    error = refusal([a, b])
    assert error.startswith("a cannot connect to b at b:20000: nothing answers in time: a firewall")
    assert error.endswith("or choose the network with --interface; b has eth0 (b)")
    assert "--hosts" not in error


def test_a_name_that_means_the_machine_itself_is_reported():
    a, b = [FakeMachine(name, interfaces={"eth0": ["10.0.0.7"]}) for name in "ab"]
    b.unreachable = {"a": obstacle("refused", "127.0.1.1", error="Connection refused")}
    error = refusal([a, b], hosts=("a", "b"))
    assert "on b the name a means 127.0.1.1, which is b itself; Debian" in error
    assert "write the address to use (--hosts a=10.0.0.7)" in error


def test_many_pairs_are_reported_by_what_they_have_in_common():
    machines = made(*(f"n{number}" for number in range(9)))
    silent = obstacle("silent", "10.0.0.9", error="timed out")
    for machine in machines[1:]:
        machine.unreachable = {"n0": silent}
    machines[0].unreachable = {one.name: silent for one in machines[1:]}
    machines[3].unreachable["n4"] = obstacle("unresolved")
    first, second, third, _ = refusal(machines).splitlines()
    n0 = "n0 cannot connect to n1 at n1:20000, n2 at n2:20000, n3 at n3:20000, n4 at n4:20000, "
    assert first.startswith(f"{n0}n5 at n5:20000 and 3 others: nothing answers")
    assert second.startswith("n1, n2, n3, n4, n5 and 3 others cannot connect to n0 at n0:20000: ")
    assert third == (
        "n3 cannot connect to n4 at n4:20000: n3 does not know the name n4 "
        "(Name or service not known)"
    )


def test_machines_that_have_met_do_not_meet_again():
    @on(lambda: Scene(made("a", "b", "c"), most=2))
    async def _(scene):
        a, b, c = scene.machines
        assert not any(agent.listening for one in (a, b) for agent in one.agents)
        a.unreachable = {"b": obstacle("silent"), "c": obstacle("silent")}
        await scene.pool.rebind()
        b.lose()
        await scene.losses.get()
        await scene.pool.rebind()
        assert not scene.pool.broken
        assert [name for name, *_ in scene.states()] == ["a"], "which needs no other"
        assert not c.agents


def test_a_pair_that_no_longer_connects_is_parted_by_a_spare():
    @on(lambda: Scene(made("a", "b", "c"), most=2))
    async def _(scene):
        a, b, _ = scene.machines
        await scene.pool.confirm(time.monotonic())
        assert not scene.pool.broken
        a.unreachable, b.unreachable = {"b": obstacle("silent")}, {"a": obstacle("silent")}
        await scene.pool.confirm(time.monotonic())
        assert scene.pool.broken
        await scene.pool.rebind()
        assert [name for name, *_ in scene.states()] == ["a", "c"]
        [agent] = a.agents
        assert len(agent.held) == 1, "ports of the check are given back"
        assert not agent.listening


def test_a_pair_that_cannot_be_parted_is_named(monkeypatch):
    monkeypatch.setattr(module, "REGAIN_LIMIT_SECONDS", 0.0)

    @on(lambda: Scene(made("a", "b", slots=1)))
    async def _(scene):
        a, _ = scene.machines

        async def both(tasks, **options):
            return [scene.engine.host(one) for one in scene.machines]

        scene.engine.allocate = both
        a.unreachable = {"b": obstacle("silent")}
        await scene.pool.confirm(time.monotonic())
        with pytest.raises(ClusterError, match="a cannot connect to b"):
            await scene.pool.rebind()


def test_an_interface_gives_the_addresses():
    a = FakeMachine("a", interfaces={"eth0": ["10.0.0.1"], "ib0": ["10.1.0.1", "fd00::1"]})
    b = FakeMachine("b", interfaces={"eth0": ["10.0.0.2"], "ib0": ["fd00::2"]})

    @on(lambda: Scene([a, b], config={"interface": "ib0"}))
    async def _(scene):
        assert [*scene.pool.spec.addresses.values()] == ["10.1.0.1:20000", "[fd00::2]:20000"]
        assert [one.address for one in scene.pool.machines] == ["10.1.0.1", "[fd00::2]"]

    error = refusal([a, b], interface="ib1")
    assert error == (
        "a has no network interface 'ib1' with an address; it has eth0 (10.0.0.1), "
        "ib0 (10.1.0.1, fd00::1)"
    )


def test_machines_without_the_framework_are_named():
    machines = made("a") + made("b", "c", versions={"tensorflow": None, "keras": None})
    error = refusal(machines)
    assert error.startswith("TensorFlow is not installed on b and c for ")
    assert error.endswith("or name a Python that has it with --python")
    assert refusal(made("a", versions={"jax": None}), framework="jax").startswith("JAX is not")


@pytest.mark.parametrize(
    ("framework", "name"),
    [("tensorflow", "tensorflow"), ("tensorflow", "keras"), ("jax", "jaxlib"), ("torch", "torch")],
)
def test_machines_with_other_versions_are_named(framework, name):
    same = made("a", "b", versions={name: "2.20.0"}) + made("d", versions={name: "2.20.1"})
    other = made("c", versions={name: "2.19.1"})
    told = f"the machines have different versions of {name}: 2.20.0 on a, b and d; 2.19.1 on c. "
    assert refusal(same + other, framework=framework).startswith(told)


def test_versions_that_fit_or_are_unknown_are_no_trouble():
    known = made("a", versions={"tensorflow": "2.20.0"}) + made(
        "b", versions={"tensorflow": "2.20.1", "keras": None}
    )
    unknown = made("c", versions={"tensorflow": ""})

    @on(lambda: Scene([*known, *unknown], tasks=3))
    async def _(scene):
        found = [one.versions["tensorflow"] for one in scene.pool.machines]
        assert found == ["2.20.0", "2.20.1", ""]


def test_a_machine_that_cannot_check_is_assumed_to_be_fine(monkeypatch):
    def refuse(*_):
        raise ValueError("no Python")

    for kind in ("find", "listen", "reach"):
        monkeypatch.setitem(agents._HANDLERS, kind, refuse)

    @on(lambda: Scene(made("a", "b")))
    async def _(scene):
        assert [one.versions for one in scene.pool.machines] == [{}, {}]


def test_a_single_machine_here_is_asked_nothing(monkeypatch):
    for kind in ("find", "listen", "reach"):
        monkeypatch.setitem(agents._HANDLERS, kind, lambda *_: pytest.fail("asked"))
    scene = Scene(made("a"))

    async def hosts(*_, **__):
        return [dataclasses.replace(scene.engine.host(one), here=True) for one in scene.machines]

    scene.engine.allocate = hosts

    @on(lambda: scene)
    async def _(scene):
        assert not scene.pool.broken
