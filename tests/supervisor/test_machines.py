"""Whole runs through a supervisor, on machines that are made up."""

from __future__ import annotations

import asyncio
import functools
import json
import signal
import time
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from clock import run_skipping
from fakes import FakeEngine, FakeMachine
from served import served

from mwmagic import gang
from mwmagic.dashboard.feed import Cursor, Feed
from mwmagic.dashboard.rows import View
from mwmagic.dashboard.static import text
from mwmagic.engines import channel
from mwmagic.model.machine import HostStatus
from mwmagic.model.messages import Start
from mwmagic.model.options import ClusterOptions
from mwmagic.model.status import RunStatus
from mwmagic.supervisor import node, supervisor
from mwmagic.words.run import blame, words


@asynccontextmanager
async def supervised(
    folder, machines, script, *, tasks=2, restarts=1, engine=(), warm=False, **config
):
    options = ClusterOptions(tasks, name="c", directory=str(folder), restarts=restarts, **config)
    made = FakeEngine(machines, script, **dict(engine))
    async with served(Start(options, warm=warm), folder, made) as client:
        await client.placed("placed", "failed")
        yield client


def on(folder, machines, script, **options):
    """Run a coroutine function with a client."""

    async def test(body):
        async with supervised(folder, machines, script, **options) as client:
            await body(client)

    return lambda body: asyncio.run(asyncio.wait_for(test(body), 60))


def printed(task):
    return Path(task["log"]).read_text()


def events(folder):
    [path] = folder.glob(".mwmagic/runs/*/events.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


def machines_of(names, **options):
    return [FakeMachine(name, address=f"10.0.0.{at}", **options) for at, name in enumerate(names)]


def test_a_gang_runs_across_machines(tmp_path):
    async def hello(worker):
        config = json.loads(worker.env["TF_CONFIG"])
        worker.print(worker.machine.name, *config["cluster"]["worker"])

    @on(tmp_path, machines_of("abc"), hello, tasks=3)
    async def _(client):
        await client.launch()
        run = await client.state("finished", "failed")
        assert run["state"] == "finished"
        addresses = "10.0.0.0:20000 10.0.0.1:20000 10.0.0.2:20000"
        for name, task in zip("abc", run["tasks"].values(), strict=True):
            assert printed(task) == f"{name} {addresses}\n"
        cluster = (await client.ask("snapshot"))["cluster"]
        assert [machine["tasks"] for machine in cluster["machines"]] == [
            ["worker:0"],
            ["worker:1"],
            ["worker:2"],
        ]


@pytest.mark.slow
def test_a_gang_restarts_on_the_machines_that_are_left(tmp_path):
    async def train(worker):
        worker.print(worker.machine.name)
        if worker.attempt == 1:
            await worker.hang()

    a, b, c = machines_of("abc")

    @on(tmp_path, [a, b, c], train, engine={"most": 2}, lease=2.0)
    async def _(client):
        await client.launch()
        await client.state("running")
        while not b.workers:  # noqa: ASYNC110 - nothing tells of it here
            await asyncio.sleep(0.005)
        b.lose("node failure")
        run = await client.state("finished", "failed")
        assert (run["state"], run["attempt"]) == ("finished", 2)
        assert client.engine.allocations == [frozenset(), {"b"}]
        logs = [printed(task) for task in run["tasks"].values()]
        assert logs == ["a\n", "c\n"]
        assert not a.lost

    told = events(tmp_path)
    [lost] = [event for event in told if event["event"] == "lost"]
    assert (lost["host"], lost["tasks"], lost["why"]) == ("b", ["worker:1"], "node failure")
    [setback] = [event for event in told if event["event"] == "setback"]
    assert "node failure" in json.dumps(setback)


def test_logs_of_machines_with_disks_of_their_own_are_kept_here(tmp_path):
    line = b"a" * 99 + b"\n"

    async def train(worker):
        worker.write(line * 12_000)  # more than the credit
        worker.write(line * 2_000)  # so far ahead that the agent skips
        worker.print(worker.task)

    options = {"shared": False, "clock": 77.0, "delay": 0.001, "lag_bytes": 2**16}

    @on(tmp_path, machines_of("ab", **options), train)
    async def _(client):
        await client.launch()
        run = await client.state("finished", "failed")
        assert run["state"] == "finished"
        for name, task in run["tasks"].items():
            assert printed(task) == line.decode() * 14_000 + f"{name}\n"


STACK = """Current thread 0x00007f3c36082b80 (most recent call first):
  File "/home/me/data.py", line 7 in load
  File "/home/me/src/mwmagic/worker/bootstrap.py", line 186 in _execute
"""


def test_tasks_on_machines_with_disks_of_their_own_are_found(tmp_path):
    async def train(worker):
        worker.stack = STACK
        await worker.hang()

    a, b = machines_of("ab", shared=False)

    @on(tmp_path, [a, b], train)
    async def _(client):
        await client.launch()
        while not (a.workers and b.workers):  # noqa: ASYNC110 - nothing tells of it here
            await asyncio.sleep(0.005)
        await client.state("running")
        await client.ask("stacks")
        await client.until(lambda news: news["run"]["examined"])
        [path] = tmp_path.glob(".mwmagic/runs/*/stacks.json")
        assert path.read_text().count("data.py:7") == 2


def test_lost_parts_of_a_log_are_reported(tmp_path):
    async def train(worker):
        worker.write(b"a" * 99_999)
        worker.machine.disk.clear()

    @on(tmp_path, machines_of("a", shared=False, lag_bytes=99), train, tasks=1, restarts=0)
    async def _(client):
        await client.launch()
        await client.state("finished", "failed")
        [end] = [event for event in events(tmp_path) if event["event"] == "exited"]
        assert "bytes of the log could not be fetched" in end["finding"]["detail"]


def test_a_new_owner_within_the_moment_after_the_old_ones_end_keeps_the_cluster(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(supervisor, "SIGNAL_SECONDS", 0.0)

    async def train(worker):
        worker.print("well")

    @on(tmp_path, machines_of("a"), train, tasks=1)
    async def _(client):
        client.supervisor._abandoned()  # the old owner is gone, and the client is the new one
        await client.ask("snapshot")
        await client.launch()
        assert (await client.state("finished", "stopped"))["state"] == "finished"


def test_a_launch_tells_of_the_import_that_it_waits_for(tmp_path, monkeypatch):
    monkeypatch.setattr(node, "IMPORT_SECONDS", 0.01)

    async def train(worker):
        worker.print("well")

    def importing(news):
        return news["run"]["tasks"]["worker:0"]["importing"]

    [machine] = machines_of("a")
    over = asyncio.Event()
    machine.imported = over.wait

    @on(tmp_path, [machine], train, tasks=1, warm=True)
    async def _(client):
        first = (await client.launch())["tasks"]["worker:0"]["importing"]
        assert first["framework"] == "TensorFlow"
        await client.until(lambda news: importing(news)["seconds"] > first["seconds"] + 0.2)
        over.set()
        run = await client.state("finished", "failed")
        assert run["state"] == "finished"
        assert importing({"run": run}) is None


def test_a_sample_costs_no_look_at_the_roles_of_all_tasks(tmp_path, monkeypatch):
    asked = []
    roles = gang.roles
    monkeypatch.setattr(gang, "roles", lambda tasks: asked.append(tasks) or roles(tasks))

    async def train(worker):
        await worker.hang()

    @on(tmp_path, machines_of("a"), train, tasks=3)
    async def _(client):
        await client.launch()
        run = await client.state("running")
        before = len(asked)
        assert before
        used = {"cpu": 0.0, "memory": 0, "state": "S", "processes": 1}
        keys = [f"{run['number']}/1/{task}" for task in run["tasks"]]
        for at in range(10):
            client.supervisor._on_event(
                {
                    "type": "usage",
                    "time": float(at),
                    "machine": {},
                    "processes": dict.fromkeys(keys, used),
                }
            )
        tasks = (await client.ask("snapshot"))["run"]["tasks"].values()
        assert [task["cpu"] for task in tasks] == [0.0] * 3
        assert len(asked) == before


def test_a_full_disk_costs_the_log_of_another_machine_and_not_its_agent(tmp_path):
    async def train(worker):
        [folder] = tmp_path.glob(".mwmagic/runs/*/attempt-1")
        (folder / "worker-0.log").symlink_to("/dev/full")
        worker.print("well")
        await worker.sleep(0)

    [machine] = machines_of("a", shared=False)

    @on(tmp_path, [machine], train, tasks=1, restarts=0)
    async def _(client):
        await client.launch()
        run = await client.state("finished", "failed")
        assert "the log ends after 0 bytes: No space left" in run["trouble"]
        rest = run["tasks"]["worker:0"]["rest"]
        assert (rest["start"], printed({"log": rest["path"]})) == (0, "well\n")
        assert machine.agents


def test_a_last_state_that_cannot_be_written_is_in_the_last_news(tmp_path, monkeypatch):
    def full(*_):
        raise OSError("no space left")

    go = asyncio.Event()

    async def train(worker):
        await go.wait()

    @on(tmp_path, machines_of("a"), train, tasks=1, restarts=0)
    async def _(client):
        await client.launch()
        monkeypatch.setattr("mwmagic.record.writer.replace", full)
        monkeypatch.setattr("mwmagic.record.writer.fill", full)
        go.set()
        run = await client.state("finished")
        assert run["trouble"] == "no space left"


@pytest.mark.slow
def test_a_machine_that_cannot_be_reached_lets_go_before_it_is_replaced(tmp_path, monkeypatch):
    monkeypatch.setattr(channel, "OVERDUE_SECONDS", 0.0)
    monkeypatch.setattr(channel, "MARGIN_SECONDS", 0.1)
    a, b, c = machines_of("abc")
    left = []

    async def train(worker):
        if worker.attempt == 1:
            await worker.hang()
        left.append(len(b.workers))

    @on(tmp_path, [a, b, c], train, engine={"most": 2}, lease=2.0)
    async def _(client):
        await client.launch()
        await client.state("running")
        while not b.workers:  # noqa: ASYNC110 - nothing tells of it here
            await asyncio.sleep(0.005)
        b.cut()
        run = await client.state("finished", "failed")
        assert (run["state"], run["attempt"]) == ("finished", 2)
        assert client.engine.allocations == [frozenset(), {"b"}]
        assert left == [0, 0]


@pytest.mark.slow
def test_a_run_fails_when_no_machine_is_left(tmp_path):
    async def train(worker):
        await worker.hang()

    [a] = machines_of("a")

    @on(tmp_path, [a], train)
    async def _(client):
        await client.launch()
        await client.state("running")
        a.lose()
        run = await client.state("finished", "failed")
        assert run["state"] == "failed"
        assert "no machine is left" in json.dumps(events(tmp_path))
        status = RunStatus.from_json(run)
        first = "worker:0, worker:1 lost with their agent on a"
        assert words(status) == f"failed: {first}; attempt 2 could not start: no machine is left"
        assert blame(status)[0] == first
        assert blame(status)[-1] == "  Attempt 2 could not start: no machine is left"


def test_what_failed_first_is_reported_by_one_clock(tmp_path):
    first = asyncio.Event()

    async def train(worker):
        if worker.task == "worker:1":
            first.set()
            worker.print("ValueError: mine")
            return 7
        await first.wait()
        await worker.sleep(0.01)
        worker.print("ConnectionResetError: Connection reset by peer")
        return 1

    here, there = machines_of("ab")
    here.clock, there.clock = -5000, 3e6

    @on(tmp_path, [here, there], train, restarts=0)
    async def _(client):
        await client.launch()
        run = await client.state("failed")
        assert run["cause"]["finding"]["task"] == "worker:1"
        moments = [event["moment"] for event in events(tmp_path) if event["event"] == "exited"]
        assert abs(moments[0] - moments[1]) < 1


async def told(client, wanted):
    """Return the first run in the news that is so."""
    news = await client.until(lambda news: wanted(news["run"]))
    return RunStatus.from_json(news["run"])


@pytest.mark.slow
def test_a_run_tells_what_its_machines_use(tmp_path, monkeypatch):
    quick = functools.partial(channel.Channel.open, sample=0.01)
    monkeypatch.setattr(channel.Channel, "open", staticmethod(quick))
    a, b = machines_of("ab", gpus=2, job="7", until=2e9)
    a.load, a.used = 3.5, 5 << 30

    async def train(worker):
        await worker.hang()

    @on(tmp_path, [a, b], train)
    async def _(client):
        await client.launch()
        run = await told(client, lambda run: all(one["used"] is not None for one in run["hosts"]))
        shown = {"processors": 4, "memory": 8 << 30, "gpus": {"Fake GPU": 2}}
        shown |= {"job": "7", "until": 2e9}
        assert run.hosts == (
            HostStatus("a", ("worker:0",), load=3.5, used=5 << 30, **shown),
            HostStatus("b", ("worker:1",), load=0.0, used=0, **shown),
        )
        machine, _ = (await client.ask("snapshot"))["cluster"]["machines"]
        assert (machine["load"], machine["used"]) == (3.5, 5 << 30)


def test_a_worker_that_a_scheduler_ends_is_reported_in_its_words(tmp_path):
    """Its signal reaches the workers before the agents are gone."""
    a, b = machines_of("ab", job="7")

    @on(tmp_path, [a, b], forever, restarts=0)
    async def _(client):
        await client.launch()
        await client.state("running")
        while not b.workers:  # noqa: ASYNC110 - nothing tells of it here
            await asyncio.sleep(0.005)
        b.why = "preempted"
        [worker] = b.workers
        worker.take(signal.SIGTERM)
        run = await told(client, lambda run: run["state"] == "failed")
        assert words(run) == "failed: host b was lost with worker:1: preempted"
        assert run.cause.finding.signal == signal.SIGTERM


def test_a_job_that_ends_soon_is_reported(tmp_path):
    soon = time.time() + 200
    machines = [FakeMachine("a", job="7", until=soon), FakeMachine("b", job="7", until=soon)]
    machines += [FakeMachine("c", job="8", until=soon + 3600), FakeMachine("d")]

    @on(tmp_path, machines, forever, tasks=4)
    async def _(client):
        await client.launch()
        run = await told(client, lambda run: run["remarks"])
        at = time.strftime("%H:%M:%S", time.localtime(soon))
        limit = f"job 7 reaches its time limit at {at}, and ends what runs on its machines."
        assert limit in text(run)
        [warning] = run.remarks
        assert warning.tasks == ("worker:0", "worker:1")
        await client.ask("stop", task=None, grace=0.0)
        run = await told(client, lambda run: run["state"] == "stopped")
        assert limit not in text(run)

    assert len([one for one in events(tmp_path) if one["event"] == "limit"]) == 1


def test_a_run_on_one_machine_has_no_hosts(tmp_path):
    @on(tmp_path, machines_of("a"), forever)
    async def _(client):
        await client.launch()
        assert (await client.state("running"))["hosts"] == []


async def forever(worker):
    await worker.hang()


@pytest.mark.slow
def test_a_lost_machine_is_reported_as_one_with_its_tasks(tmp_path):
    a, b = machines_of("ab", slots=3)

    @on(tmp_path, [a, b], forever, tasks=6, restarts=0)
    async def _(client):
        await client.launch()
        await client.state("running")
        while len(b.workers) < 3:  # noqa: ASYNC110 - nothing tells of it here
            await asyncio.sleep(0.005)
        b.lose("node failure")
        run = await told(client, lambda run: run["state"] == "failed")
        why = "host b was lost with worker:3 to worker:5: node failure"
        assert words(run) == f"failed: {why}"
        assert run.cause.known == "host-lost"
        assert [(one.name, one.lost, one.why) for one in run.hosts] == [
            ("a", False, None),
            ("b", True, "node failure"),
        ]
        assert "b  lost with 3 tasks: node failure" in text(run)
        [record] = tmp_path.glob(".mwmagic/runs/*/run.json")
        assert text(RunStatus.from_json(json.loads(record.read_text()))) == text(run)


@pytest.mark.slow
def test_a_thousand_tasks_are_reported_by_host(tmp_path, monkeypatch):
    monkeypatch.setattr("mwmagic.dashboard.feed.SUMMARY_SECONDS", 0)
    # What machines use comes at moments of its own, and would be in either message.
    unmeasured = functools.partial(channel.Channel.open, sample=0.0)
    monkeypatch.setattr(channel.Channel, "open", staticmethod(unmeasured))
    go = asyncio.Event()

    async def train(worker):
        worker.print("step 1/2 loss=0.5")
        await go.wait()
        worker.print("step 2/2 loss=0.5")
        await worker.hang()

    def at(step):
        return lambda run: all(
            (task["progress"] or {}).get("step") == step for task in run["tasks"].values()
        )

    machines = [FakeMachine(f"n{at}", address=f"10.0.0.{at}", slots=8) for at in range(125)]

    @on(tmp_path, machines, train, tasks=1000, restarts=0)
    async def _(client):
        await client.launch()
        run = await told(client, at(1))
        assert len(text(run).splitlines()) == 1 + 125
        feed = Feed(View(run))
        message, known = feed.packet(Cursor(), 10_000)
        assert len(json.dumps(message["hosts"])) < 125 * 150
        assert not message.get("rows")
        go.set()
        run = await told(client, at(2))
        feed.update(View(run))
        message, _ = feed.packet(known, 10_000)
        assert len(message["hosts"]) == 125
        assert len(json.dumps(message["hosts"])) < 125 * 60
        assert not message.get("rows")


def test_a_run_whose_machine_was_cut_off_has_an_end_when_its_cluster_is_closed(
    tmp_path, monkeypatch
):
    [a] = machines_of("a")

    async def train(worker):
        await worker.hang()

    async def test():
        async with supervised(tmp_path, [a], train, tasks=1, restarts=0, lease=10) as client:
            await client.launch()
            await client.state("running")
            a.cut()
            client.writer.close()

    run_skipping(monkeypatch, test())
    [state] = tmp_path.glob(".mwmagic/runs/*/run.json")
    assert json.loads(state.read_text())["state"] == "stopped"
