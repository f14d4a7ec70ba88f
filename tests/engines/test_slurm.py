"""The Slurm engine on a real Slurm with three nodes."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager
from pathlib import Path

import pytest
import sweeping
from accidents import (
    LEASE_SECONDS,
    LOST,
    agent,
    clients,
    had,
    kill,
    link,
    owned,
    way_back,
    way_there,
    worker,
)
from fakes.conformance import CHECKS, Subject
from processes import children, eventually, running
from pythons import apart, elsewhere, program
from slurm import GPUS
from training import assert_it_is_found_elsewhere_on_one, trained

from mwmagic import Cluster, clusters
from mwmagic.engines import CODE, engine_for
from mwmagic.engines.channel import OVERDUE_SECONDS, Channel
from mwmagic.errors import ClusterError, WorkerFailed
from mwmagic.model.cluster import make_tasks
from mwmagic.model.findings import Symptom
from mwmagic.model.machine import Machine
from mwmagic.model.options import ClusterOptions

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("slurm", "nothing_survives", "idle")]

HOLDER = """
import asyncio, sys
from mwmagic.engines import engine_for
from mwmagic.model.cluster import make_tasks
from mwmagic.model.options import ClusterOptions
async def main():
    options = ClusterOptions(directory="/", engine="slurm", nodes=3, scheduler=["--exclusive"])
    engine = engine_for(options)
    await engine.allocate(make_tasks(3), avoid=(), notify=lambda words: print(words, flush=True))
    await asyncio.sleep(600)
asyncio.run(main())
"""


@pytest.fixture
def idle(slurm):
    """Fail a test that leaves a job behind."""
    eventually(slurm.idle, slurm.queue)
    yield
    eventually(lambda: not slurm.jobs() and slurm.idle(), slurm.queue)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_engine_conforms(check, tmp_path):
    run(check(Subject(lambda: declared(nodes=2), str(tmp_path))))


def declared(**options):
    return engine_for(ClusterOptions(directory="/", engine="slurm", **options))


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 120))


async def ask(engine, tasks=2, avoid=(), notify=lambda _: None):
    return await engine.allocate(make_tasks(tasks), avoid=frozenset(avoid), notify=notify)


@asynccontextmanager
async def allocated(tasks=2, **options):
    """Allocate nodes, and give them back."""
    engine = declared(**options)
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


def test_machines_are_reported_when_they_are_granted(slurm):
    async def test():
        engine, said = declared(nodes=2, scheduler=["--time=60"]), []
        try:
            hosts = await ask(engine, 4, notify=said.append)
            assert [host.slots for host in hosts] == [2, 2]
            assert not any(host.here for host in hosts)
            [job] = slurm.jobs()
            assert said[-1].startswith(f"Slurm job {job} on mw")
            assert {host.job for host in hosts} == {job}
            assert all(3500 < host.until - time.time() <= 3600 for host in hosts)
            assert re.search(r"\(2 tasks each\), (59|60) min left$", said[-1])
        finally:
            await engine.release()

    run(test())


def test_the_users_own_arguments_win(slurm):
    async def test():
        async with allocated(4, scheduler=["--ntasks-per-node=2"]) as (_, hosts):
            assert [host.slots for host in hosts] == [2, 2]
        async with allocated(4, scheduler=["-N3", "--ntasks=3"]) as (_, hosts):
            assert [host.slots for host in hosts] == [2, 2, 2]

    run(test())


def test_nodes_have_as_many_tasks_as_slurm_gives_each(slurm):
    async def test():
        async with allocated(5, scheduler=["--nodes=2", "--ntasks=5"]) as (_, hosts):
            slots = [host.slots for host in hosts]
            assert sum(slots) == 5
            assert slots[0] != slots[1]

    run(test())


@pytest.mark.parametrize(
    "words",
    [
        ["--gpus=4", "--nodes=2"],
        ["--gpus-per-task=1", "--ntasks=4", "--nodes=2"],
        ["--gres=gpu:2", "--nodes=2"],
        ["--exclusive", "--nodes=2"],
    ],
    ids=lambda words: words[0],
)
def test_an_agent_sees_all_gpus_of_the_job_on_its_node(words, slurm):
    async def test():
        async with allocated(4, scheduler=words) as (_, hosts):
            for host in hosts:
                channel = await Channel.open(host)
                answer = await channel.request("look")
                await channel.close()
                visible = Machine.read(answer["machine"]).visible
                assert visible == ",".join(map(str, range(GPUS)))

    run(test())


def test_slurm_refuses_in_its_own_words(slurm):
    async def test():
        engine = declared(scheduler=["--partition=nope"])
        with pytest.raises(ClusterError, match="invalid partition specified: nope"):
            await ask(engine)
        assert not engine.helpers

    run(test())


STRAY = """\
#!/bin/sh
echo >> {tries}
if [ $(wc -l < {tries}) -le {strays} ]; then
    echo "salloc: error: _handle_msg: received spurious message type: 6003" >&2
    echo "salloc: error: Job submit/allocate failed: No error" >&2
    exit 1
fi
exec {salloc} "$@"
"""


@pytest.fixture
def disturbed(slurm, tmp_path, monkeypatch):
    """Have salloc end as it does where the step of an srun that was killed reports to its port."""

    def disturb(strays):
        one, tries = tmp_path / "bin" / "salloc", tmp_path / "tries"
        one.parent.mkdir()
        facts = {"tries": tries, "strays": strays, "salloc": shutil.which("salloc")}
        one.write_text(STRAY.format(**facts))
        one.chmod(0o700)
        monkeypatch.setenv("PATH", str(one.parent), prepend=":")
        return tries

    return disturb


def test_a_stray_message_to_salloc_is_no_refusal(slurm, disturbed):
    tries = disturbed(strays=2)

    async def test():
        async with allocated(2, nodes=2) as (_, hosts):
            assert len(hosts) == 2

    run(test())
    assert len(tries.read_text()) == 3


def test_stray_messages_without_end_are_reported(slurm, disturbed):
    tries = disturbed(strays=9)
    with pytest.raises(ClusterError, match="received spurious message type: 6003"):
        run(ask(declared(nodes=2)))
    assert len(tries.read_text()) == 3


def test_a_machine_without_salloc_says_where_to_go(slurm, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setenv("PATH", "/nowhere")
        engine = declared()
    with pytest.raises(ClusterError, match=r"there is no salloc on this machine: .* a login node"):
        run(ask(engine))


def test_a_request_that_waits_tells_why_and_can_be_cancelled(slurm):
    async def test():
        async with allocated(3, nodes=3, scheduler=["--exclusive", "--time=60"]):
            engine, said = declared(nodes=1), asyncio.Queue()
            waiting = asyncio.create_task(ask(engine, notify=said.put_nowait))
            assert " waits (" in await said.get()
            assert len(slurm.jobs()) == 2
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert len(slurm.jobs()) == 1
            assert not engine.helpers

    run(test())


def test_a_holder_that_is_killed_leaves_no_job(slurm):
    with ExitStack() as stack:
        first = stack.enter_context(held())
        heard(first, " on mw")
        second = stack.enter_context(held())
        heard(second, " waits (")
        assert len(slurm.jobs()) == 2
        second.kill()
        eventually(lambda: len(slurm.jobs()) == 1, "end of the job that waits")
        first.kill()
        eventually(lambda: not slurm.jobs(), "end of the job that runs")


def held():
    return subprocess.Popen([sys.executable, "-c", HOLDER], stdout=subprocess.PIPE, text=True)


def heard(process, words):
    """Wait until a process prints certain words."""
    assert any(words in line for line in process.stdout)


def test_a_lost_node_is_replaced_by_another_allocation(slurm):
    async def test():
        async with allocated(nodes=2) as (engine, [_, second]):
            [job] = slurm.jobs()
            channel = await Channel.open(second)
            os.kill(channel.pid, signal.SIGKILL)
            await ended(channel)
            assert await engine.why(second) is None
            hosts = await ask(engine, avoid=[second.name])
            assert len(hosts) == 2
            assert second.name not in names(hosts)
            eventually(lambda: job not in slurm.jobs(), "end of the first job")

    run(test())


def test_a_spare_node_replaces_a_lost_one_and_the_others_stay(slurm):
    async def test():
        async with allocated(2, scheduler=["--nodes=3", "--ntasks=3"]) as (engine, hosts):
            before = slurm.jobs()
            assert await ask(engine, avoid=[hosts[1].name]) == [hosts[0], hosts[2]]
            assert slurm.jobs() == before

    run(test())


def test_lost_nodes_are_asked_for_again_if_there_are_too_few_others(slurm):
    async def test():
        async with allocated(3, nodes=3) as (engine, hosts):
            heard = []
            again = await ask(engine, 3, avoid=[hosts[0].name], notify=heard.append)
            assert names(again) == names(hosts)
            lost = f"without {hosts[0].name}, which this cluster lost"
            assert any(f"not available ({lost}); asking for all nodes" in one for one in heard)

    run(test())


def test_a_cancelled_job_is_reported_and_its_nodes_are_not_to_blame(slurm):
    async def test():
        async with allocated(3, nodes=3) as (engine, hosts):
            [job] = slurm.jobs()
            channel = await Channel.open(hosts[0])
            slurm.ask("scancel", job)
            await ended(channel)
            assert await engine.why(hosts[0]) == f"Slurm job {job}: CANCELLED"
            assert names(await ask(engine, 3, avoid=names(hosts))) == names(hosts)

    run(test())


def test_a_node_that_is_down_is_reported(slurm):
    async def test():
        async with allocated(nodes=2) as (engine, [first, second]):
            with down(slurm, second.name):
                why = await engine.why(second)
                assert re.fullmatch(rf".*node {second.name} .*\(no power\)", why)
                assert await engine.why(first) is None
                hosts = await ask(engine, avoid=[second.name])
                assert second.name not in names(hosts)

    run(test())


@contextmanager
def down(slurm, name):
    """Take a node out of service."""
    update = ("scontrol", "update", f"nodename={name}")
    slurm.ask(*update, "state=down", "reason=no power")
    try:
        yield
    finally:
        slurm.ask(*update, "state=resume")


def test_a_job_around_the_cluster_is_used_and_left_alone(slurm, monkeypatch):
    async def test():
        async with allocated(3, nodes=3) as (_, outer):
            [job] = slurm.jobs()
            monkeypatch.setenv("SLURM_JOB_ID", job)
            monkeypatch.setenv("SLURM_TASKS_PER_NODE", "1(x3)")
            async with allocated(2, nodes=2) as (inner, hosts):
                assert names(hosts) == names(outer[:2])
                kept = await ask(inner, avoid=[hosts[1].name])
                assert kept[0] == hosts[0]
                assert names(kept) == {outer[0].name, outer[2].name}
                channel = await Channel.open(kept[1])
                await channel.close()
                every = await ask(inner, avoid=names(outer))
                assert len(every) == 2
            assert slurm.jobs() == [job]
            with pytest.raises(ClusterError, match=f"Slurm job {job} has 3 nodes .*, not 4"):
                await ask(declared(nodes=4))
            with pytest.raises(ClusterError, match=f"inside Slurm job {job}, .* SLURM_JOB_ID"):
                await ask(declared(scheduler=["--exclusive"]))
        with pytest.raises(ClusterError, match="which is COMPLETED; remove it"):
            await ask(declared())

    run(test())


TASK = """
import json, os, socket, time
print("on", socket.gethostname(), os.environ["TF_CONFIG"], flush=True)
while not os.path.exists("go"):
    time.sleep(0.05)
"""


def test_a_cluster_runs_on_two_nodes_and_moves_off_a_lost_one(slurm, cluster, tmp_path):
    tmp_path.joinpath("task.py").write_text(TASK)
    one = cluster(2, engine="slurm", nodes=2, restarts=1)
    before = {machine.name for machine in one.machines}
    training = one.run("task.py")
    eventually(lambda: len(places(training)) == 2)
    assert places(training) == before
    lost = sorted(before)[1]
    os.kill(srun_on(lost), signal.SIGKILL)
    eventually(lambda: training.status().attempt == 2 and len(places(training)) == 2, "restart")
    assert lost not in places(training)
    tmp_path.joinpath("go").touch()
    training.wait(timeout=120)
    one.close()
    eventually(lambda: not slurm.jobs(), "end of the job")
    daemons = {"slurmd", "slurmscriptd", "unshare", "sh"}
    eventually(lambda: all(p.name() in daemons for h in slurm.network.hosts for p in h.processes()))


def test_each_cluster_of_a_sweep_has_one_job_for_all_its_trials(slurm, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    where = ["-n", "2", "--nodes", "1", "--parallel", "2"]
    sweep = sweeping.begun(*where, "main.py", "units=1,2,3,4", engine="slurm")
    sweeping.two_are_going()
    first = set(slurm.jobs())
    assert len(first) == 2
    sweep.kill()
    eventually(lambda: not slurm.jobs(), "end of the jobs")
    sweep.communicate()
    sweep = sweeping.begun("--resume", "--parallel", "2", engine="slurm")
    text, jobs = sweeping.ended(sweep, slurm.jobs)
    assert len(jobs) == 2
    assert not jobs & first
    assert "trial 1 begins again: run 1 was interrupted" in text


def places(training):
    """Return the hosts that the latest attempt's tasks print, in whole lines."""
    status = training.status()
    folder = Path(status.directory, f"attempt-{status.attempt}")
    logs = [path.read_text() for path in folder.glob("*.log")]
    return {log.split()[1] for log in logs if log.startswith("on ") and "\n" in log}


def srun_on(name):
    listed = subprocess.run(
        ["pgrep", "--full", f"^srun .*--nodelist={name} "],
        capture_output=True,
        text=True,
        check=True,
    )
    return int(listed.stdout.split()[0])


OWNER = """
import os, signal
from mwmagic import Cluster
cluster = Cluster(2, engine="slurm", nodes=2, hold=600, warm=False)
cluster.run("task.py")
os.kill(os.getpid(), signal.SIGKILL)
"""


def reserved():
    [one] = clusters()
    with closing(one):
        return one.reserved


def test_the_job_of_an_owner_that_is_killed_is_kept_for_the_next_one(slurm, cluster, tmp_path):
    tmp_path.joinpath("task.py").write_text(TASK)
    tmp_path.joinpath("owner.py").write_text(OWNER)
    assert subprocess.run([sys.executable, "owner.py"], check=False).returncode == -signal.SIGKILL
    [job] = slurm.jobs()
    eventually(reserved, "a cluster that waits for an owner")
    with closing(Cluster.attach()) as one:
        assert {machine.job for machine in one.machines} == {job}
        assert one.latest.state == "stopped"
        training = one.run("task.py")
        tmp_path.joinpath("go").touch()
        training.wait(timeout=120)
        assert places(training) == {machine.name for machine in one.machines}
        assert slurm.jobs() == [job]


WAITS = """
import sys
from mwmagic import Cluster
Cluster(2, engine="slurm", nodes=2, warm=False, detach=sys.argv[1] == "detach")
"""


@contextmanager
def busy(slurm):
    """Have all nodes, so that every request waits."""
    words = ("salloc", "--nodes=3", "--exclusive", "cat")
    with running(words, stdin=subprocess.PIPE) as other:
        eventually(lambda: slurm.jobs() and slurm.nodes(slurm.jobs()[0]), "a job")
        yield
        other.stdin.close()
        other.wait(120)


def waiting(slurm, *words):
    """Start an owner of a cluster, and return its process once its request waits."""
    owner = subprocess.Popen([sys.executable, "-c", WAITS, *words])
    eventually(lambda: len(slurm.jobs()) == 2, "a job that waits")
    return owner


def test_an_owner_that_ends_in_the_queue_leaves_no_job_unless_it_is_detached(slurm, cluster):
    with busy(slurm):
        for end in (signal.SIGKILL, signal.SIGINT):
            with waiting(slurm, "stay") as owner:
                owner.send_signal(end)
            eventually(lambda: len(slurm.jobs()) == 1, "end of the job that waits")
        with waiting(slurm, "detach") as owner:
            owner.kill()
    with closing(Cluster.attach()) as one:  # it gets its nodes without an owner
        assert {machine.job for machine in one.machines} == set(slurm.jobs())
        one.shutdown()


def test_a_run_does_not_need_the_daemon_of_its_node(slurm, cluster, tmp_path):
    tmp_path.joinpath("task.py").write_text(TASK)
    one = cluster(2, engine="slurm", nodes=2)
    training = one.run("task.py")
    eventually(lambda: len(places(training)) == 2)
    name = sorted(places(training))[1]
    [host] = [each for each in slurm.network.hosts if each.name == name]
    kill([each.pid for each in host.processes() if each.name() == "slurmd"])
    tmp_path.joinpath("go").touch()
    training.wait(timeout=120)
    one.close()
    left = {"slurmd", "slurmstepd", "slurmscriptd", "unshare", "sh"}
    eventually(lambda: all(each.name() in left for each in host.processes()), "end of the agent")
    slurm.start_on(host)  # Slurm waits for it to say that the job is over


# Accidents: what is told, that a restart waits for the end of what was, and what is left.


def client(host, mark):
    kill(clients("srun", host))


def daemon(host, mark):
    """What serves the step."""
    kill([one.pid for one in host.processes() if one.name() == "slurmstepd"])


@pytest.mark.parametrize(
    ("accident", "symptoms"),
    [
        (worker, [Symptom.KILLED]),
        (agent, LOST),
        (client, LOST),
        (daemon, LOST),
        (link, LOST),
        (way_there, LOST),
        (way_back, LOST),
    ],
    ids=lambda one: getattr(one, "__name__", None),
)
def test_a_run_goes_on_after_an_accident(slurm, cluster, accident, symptoms):
    one = cluster(2, engine="slurm", nodes=2, restarts=1, lease=LEASE_SECONDS)
    told = had(one, slurm.network.hosts, accident)
    assert told.finding.symptom in symptoms
    silent = f"no answer for {LEASE_SECONDS + OVERDUE_SECONDS:g} s"
    assert accident is not link or told.finding.detail == silent
    assert (told.hosts["struck"] in told.hosts["after"].values()) == (accident is worker)


@pytest.mark.parametrize("victim", ["kernel", "supervisor"])
def test_nothing_is_left_when_a_process_here_is_killed(slurm, cluster, victim):
    with owned(slurm.network.hosts, {"engine": "slurm", "nodes": 2}) as kernel:
        os.kill(kernel if victim == "kernel" else children(kernel)[0], signal.SIGKILL)
    eventually(lambda: not slurm.jobs(), "end of the job")


# Slurm ends a job: it sends SIGTERM to the workers as well as to their agents.

STAYS = """
import os, time
print("on", os.uname().nodename, flush=True)
time.sleep(600)
"""
EATS = """
import os, time
print("on", os.uname().nodename, flush=True)
held = [bytes(range(256)) * 40_000 for _ in range(60)]
time.sleep(600)
"""


def cancel(slurm, job):
    slurm.ask("scancel", job)


def preempt(slurm, job):
    """Ask for all nodes, with the right to have them at once."""
    slurm.ask("salloc", "--partition=urgent", "--nodes=3", "--exclusive", "true")


def break_a_node(slurm, job):
    [name, *_] = slurm.ask("scontrol", "show", "hostnames", slurm.nodes(job)).split()
    with down(slurm, name):
        pass


def wait_for_memory(slurm, job):
    """The tasks use too much of it by themselves."""


@pytest.mark.parametrize(
    ("end", "state", "words"),
    [
        (cancel, "CANCELLED", []),
        (preempt, "PREEMPTED", []),
        (break_a_node, r"NODE_FAIL \(NodeDown\)", ["--no-kill=off"]),
        (wait_for_memory, r"OUT_OF_MEMORY \(exceeded memory .*\)", ["--mem=200"]),
    ],
    ids=["cancelled", "preempted", "node", "memory"],
)
def test_the_end_of_a_job_is_reported_in_words_of_slurm(slurm, cluster, end, state, words):
    one = cluster(2, engine="slurm", nodes=2, scheduler=words)
    [job] = slurm.jobs()
    training = one.run("main.py", source=EATS if end is wait_for_memory else STAYS)
    eventually(lambda: len(places(training)) == 2)
    end(slurm, job)
    with pytest.raises(WorkerFailed):
        training.wait(120)
    finding = training.cause.finding
    assert finding.symptom is Symptom.HOST_LOST
    assert re.fullmatch(rf"Slurm job {job}: {state}", finding.detail)
    assert training.record.state == "failed"


SAVES = """
import os, signal, time
def save(*_):
    time.sleep(0.7)
    print("saved", flush=True)
    os._exit(42)
signal.signal(signal.SIGTERM, save)
print("on", os.uname().nodename, flush=True)
time.sleep(600)
"""


def test_workers_save_at_a_time_limit_and_another_job_goes_on(slurm, cluster):
    one = cluster(2, engine="slurm", nodes=2, scheduler=["--time=1"], restarts=1)
    [job] = slurm.jobs()
    training = one.run("main.py", source=SAVES)
    eventually(lambda: len(places(training)) == 2)
    [warning] = training.status().remarks
    assert warning.finding.symptom is Symptom.JOB_ENDS
    assert warning.finding.job == job
    assert warning.tasks == ("worker:0", "worker:1")
    slurm.ask("scontrol", "update", f"jobid={job}", "EndTime=now")  # Slurm looks every 30 s
    eventually(lambda: training.status().attempt == 2 and len(places(training)) == 2)
    [setback] = training.status().setbacks
    assert setback.cause.finding.detail == f"Slurm job {job}: TIMEOUT (TimeLimit)"
    folder = Path(training.status().directory, "attempt-1")
    assert all(log.read_text().endswith("saved\n") for log in folder.glob("*.log"))
    eventually(lambda: {one.finding.job for one in training.status().remarks} - {job}, "new job")


def test_a_run_asks_again_after_a_preemption_and_waits_in_the_queue(slurm, cluster):
    """Slurm puts no job of salloc back into its queue, whatever PreemptMode says."""
    one = cluster(2, engine="slurm", nodes=2, restarts=1)
    [job] = slurm.jobs()
    training = one.run("main.py", source=STAYS)
    eventually(lambda: len(places(training)) == 2)
    assert "batch" in slurm.complaint("scontrol", "requeue", job)
    urgent = ("--partition=urgent", "--nodes=3", "--exclusive")
    with running(["salloc", *urgent, "cat"], stdin=subprocess.PIPE) as other:
        eventually(lambda: training.words.startswith("waiting for machines: Slurm job"))
        other.stdin.close()
        other.wait(120)
    eventually(lambda: len(places(training)) == 2)
    [setback] = training.status().setbacks
    assert setback.cause.finding.detail == f"Slurm job {job}: PREEMPTED"
    assert job not in slurm.jobs()


def test_a_run_waits_for_the_job_around_it_that_slurm_puts_back_into_its_queue(
    slurm, cluster, monkeypatch
):
    said = slurm.ask("sbatch", "--parsable", "--requeue", "--nodes=2", "--wrap=sleep 600")
    eventually(lambda: slurm.nodes(said), "the job's nodes")
    monkeypatch.setenv("SLURM_JOB_ID", said)
    one = cluster(2, engine="slurm", nodes=2, restarts=1)
    training = one.run("main.py", source=STAYS)
    eventually(lambda: len(places(training)) == 2)
    slurm.ask("scontrol", "requeue", said)
    eventually(lambda: training.words.startswith(f"waiting for machines: Slurm job {said} waits"))
    [setback] = training.status().setbacks
    assert setback.cause.finding.symptom is Symptom.HOST_LOST
    assert setback.cause.finding.detail.startswith(f"Slurm job {said}: REQUEUED")
    eventually(lambda: training.status().attempt == 2 and len(places(training)) == 2)
    one.close()
    assert slurm.jobs() == [said]
    slurm.ask("scancel", said)


@pytest.mark.tensorflow
def test_a_training_across_nodes_gives_the_numbers_of_one_machine(slurm, tmp_path, monkeypatch):
    """One has another clock, one TensorFlow elsewhere, and one neither this disk nor the code."""
    monkeypatch.chdir(tmp_path)
    with Cluster(3, warm=False) as here:
        _, expected = trained(here)
    _, second, third = slurm.network.hosts
    lines = [elsewhere(slurm.folder, second), apart(third, [tmp_path, CODE])]
    python = program(slurm.folder, "\n".join(lines))
    with Cluster(3, engine="slurm", nodes=3, python=python) as there:
        hosts, found = trained(there)
        assert_it_is_found_elsewhere_on_one(there.latest)
    assert set(hosts) == {host.name for host in slurm.network.hosts}
    assert found == expected


SHOW = """
import json, os, socket
from pathlib import Path
task = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
own = json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"]
with socket.create_server(("", int(own[task].rpartition(":")[2]))):
    pass
Path(f"shown-{task}.json").write_text(json.dumps([os.uname().nodename, own]))
"""


def test_an_exported_script_runs_on_the_nodes_that_sbatch_gets(slurm, cluster, tmp_path):
    run = cluster(3).run("main.py", source=SHOW)
    run.wait(120)
    for path in tmp_path.glob("shown-*.json"):
        path.unlink()
    tmp_path.joinpath("job.sh").write_text(run.export("slurm"))
    said = slurm.ask(
        "sbatch", "--wait", "--nodes=2", f"--export=ALL,PYTHON={sys.executable}", "job.sh"
    )
    logs = [path.read_text() for path in tmp_path.glob("main-*.log")]
    shown = [tmp_path / f"shown-{task}.json" for task in range(3)]
    assert all(path.exists() for path in shown), (said, logs)
    found = [json.loads(path.read_text()) for path in shown]
    assert len({tuple(addresses) for _, addresses in found}) == 1
    assert [host for host, _ in found] == [one.split(":")[0] for one in found[0][1]]
    assert len({host for host, _ in found}) == 2
