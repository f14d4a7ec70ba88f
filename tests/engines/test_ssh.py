"""The ssh engine, with real daemons on hosts of their own."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from contextlib import asynccontextmanager
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
from network import AHEAD_SECONDS
from processes import alive, command, eventually, labelled, parent, running
from pythons import elsewhere, on, program
from training import assert_it_is_found_elsewhere_on_one, trained

from mwmagic import Cluster
from mwmagic.engines import engine_for
from mwmagic.engines.channel import Channel
from mwmagic.errors import ClusterError, NoRun, SupervisorError, WorkerFailed
from mwmagic.model.cluster import make_tasks
from mwmagic.model.findings import Symptom
from mwmagic.model.options import ClusterOptions

pytestmark = [pytest.mark.usefixtures("nothing_survives"), pytest.mark.slow]

TORCH_FOLDER = Path(__file__).parents[2] / ".torch"
"""Where `make` puts PyTorch."""


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 120))


def made(lab, *, hosts=None, config=None, words=(), **options):
    given = ["-F", str(config or lab.config), *words]
    hosts = hosts or lab.names
    declared = {"directory": "/", "engine": "ssh", "hosts": hosts, "scheduler": given}
    return engine_for(ClusterOptions(**declared, **options))


async def host_of(engine):
    [host] = await engine.allocate(make_tasks(1), avoid=(), notify=print)
    return host


async def refusal(*given, **options):
    host = await host_of(made(*given, **options))
    with pytest.raises(SupervisorError) as caught:
        await Channel.open(host)
    return str(caught.value)


@asynccontextmanager
async def worker_on(lab, host, folder, *, silence=0.0, **options):
    """Yield the engine, the channel to a host, and what says its loss; a worker hangs there."""
    engine = made(lab, hosts=[host.name], **options)
    channel = await Channel.open(await host_of(engine), silence=silence)
    lost, started = asyncio.Event(), asyncio.Event()
    channel.lost = lost.set
    channel.listener = lambda event: event["type"] == "started" and started.set()
    try:
        channel.send(
            "start",
            process="p",
            argv=["sleep", "600"],
            env=dict(os.environ),
            cwd="/",
            log=str(folder / "p.log"),
            report=None,
            zygote=None,
            attributes={},
            credit=100,
            grace=0.0,
        )
        await started.wait()
        assert len(lab.left(host)) == 2
        yield engine, channel, lost
    finally:
        await channel.close()


def gone(lab, *hosts):
    eventually(lambda: not lab.left(*hosts), lambda: f"end of {lab.left(*hosts)}")


# What keeps ssh from reaching a machine is said in its own words.


@pytest.mark.parametrize(
    ("options", "words", "said"),
    [
        ({}, ["-o", "UserKnownHostsFile=/dev/null"], "Host key verification failed"),
        ({}, ["-p", "1"], "Connection refused"),
        ({}, ["-l", "nobody"], "Permission denied"),
        ({"hosts": ["nowhere.invalid"]}, [], "Could not resolve hostname nowhere.invalid"),
        ({"python": "~/no/python"}, [], "/home/no/python: No such file or directory"),
        ({"python": "/bin/cat"}, [], "/bin/cat: invalid option"),
    ],
)
def test_why_a_machine_is_not_reached(lab, options, words, said):
    error = run(refusal(lab, words=words, **options))
    name = options.get("hosts", lab.names)[0]
    assert error.startswith(f"the agent on {name} ended: ")
    assert said in error
    assert f"or other output: ssh -F {lab.config} " in error
    assert "\n" not in error


def test_ssh_is_needed(lab, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ClusterError, match="no program 'ssh' on this machine; install"):
        run(host_of(made(lab)))


def test_words_that_ssh_does_not_know_are_refused_before_it_connects(lab):
    with pytest.raises(ClusterError, match=r"ssh does not accept .*: Bad .* option: nonsense"):
        run(host_of(made(lab, words=["-o", "Nonsense=yes"])))


def test_what_a_login_prints_is_shown(lab):
    chatter = lab.home / ".bashrc"
    chatter.write_text("echo Welcome\n")
    try:
        error = run(refusal(lab))
    finally:
        chatter.unlink()
    assert r"ended: not a message: b'Welcome'" in error


# How a machine is reached.


def test_a_machine_has_the_address_of_the_configuration_or_of_the_user(lab):
    async def addresses(*hosts):
        engine = made(lab, hosts=hosts)
        found = await engine.allocate(make_tasks(5), avoid=(), notify=print)
        return {host.name: host.address for host in found}

    one = lab.hosts[0]
    assert run(addresses(one.name, f"me@{one.name}", "lab2.example", "x=10.0.0.1", "fe80::1")) == {
        one.name: one.address,
        f"me@{one.name}": one.address,
        "lab2.example": "lab2.example",
        "x": "10.0.0.1",
        "fe80::1": "[fe80::1]",
    }


def test_a_path_may_be_below_the_home_there_and_have_any_characters(lab):
    python = lab.home / "it's $(mine)" / "python"
    python.parent.mkdir()
    python.symlink_to(sys.executable)

    async def test():
        channel = await Channel.open(await host_of(made(lab, python="~/it's $(mine)/python")))
        await channel.close()

    run(test())


def effective(lab, **options):
    """Return the settings that ssh works with."""
    full = run(host_of(made(lab, **options))).command
    words = ["ssh", "-G", *full[1 : full.index("--")]]
    lines = subprocess.run(words, check=True, capture_output=True, text=True).stdout.splitlines()
    return dict(line.split(maxsplit=1) for line in lines if " " in line)


def test_ssh_gives_up_only_after_the_lease_whatever_the_configuration_says(lab):
    config = lab.configure("eager", before="ServerAliveInterval 1\nServerAliveCountMax 1\n")
    settings = effective(lab, config=config, lease=6.5)
    assert (settings["serveraliveinterval"], settings["serveralivecountmax"]) == ("7", "2")
    assert effective(lab, config=config, lease=0)["serveraliveinterval"] == "1"


def test_the_user_has_the_last_word(lab):
    settings = effective(lab, words=["-o", "ConnectTimeout=99"])
    assert settings["connecttimeout"] == "99"
    assert settings["batchmode"] == "yes"
    assert settings["stricthostkeychecking"] == "ask"


# What is lost leaves nothing behind.


def test_a_client_that_is_killed(lab, tmp_path):
    async def test():
        host = lab.hosts[0]
        async with worker_on(lab, host, tmp_path) as (engine, channel, lost):
            os.kill(channel.pid, signal.SIGKILL)
            await lost.wait()
            gone(lab, host)
            assert await engine.why(channel.host) is None

    run(test())


def test_a_daemon_that_is_killed_is_reported_in_words_of_ssh(lab, tmp_path):
    async def test():
        host = lab.hosts[1]
        async with worker_on(lab, host, tmp_path) as (engine, channel, lost):
            [session] = lab.sessions(host)
            session.kill()
            await lost.wait()
            gone(lab, host)
            closed = f"Connection to {host.address} closed by remote host"
            assert await engine.why(channel.host) == closed
            with pytest.raises(SupervisorError, match=f"the agent on {host.name} ended"):
                await channel.request("ping", seconds=0.01, until=None)

    run(test())


def test_a_link_that_is_cut_ends_the_workers_before_others_are_started(lab, tmp_path):
    async def test():
        host = lab.hosts[2]
        async with worker_on(lab, host, tmp_path, silence=LEASE_SECONDS) as (_, channel, lost):
            try:
                host.cut()
                await lost.wait()
                await asyncio.sleep(channel.lease.fenced - time.monotonic())  # as a restart does
                assert not lab.left(host)
            finally:
                host.mend()

    run(test())


# Connections that ssh shares.


@pytest.fixture
def master(lab):
    """A connection of the user's to the first host, which others share: its configuration."""
    path = lab.folder / "shared"
    config = lab.configure("sharing", before=f"ControlPath {path}\nControlMaster auto\n")
    words = ["ssh", "-F", str(config), "-N", lab.names[0]]
    with running(words, stdin=subprocess.DEVNULL) as process:
        eventually(path.exists, "shared connection")
        yield config
        assert process.poll() is None  # others may need it
        process.terminate()
        process.wait(120)


def shared(lab, tmp_path, master, then, **options):
    async def test():
        host = lab.hosts[0]
        async with worker_on(lab, host, tmp_path, config=master, **options) as (_, channel, lost):
            assert len(lab.sessions(host)) == 1
            await then(channel, lost)
        gone(lab, host)

    run(test())


def test_a_client_of_a_shared_connection_is_closed(lab, tmp_path, master):
    async def then(*_):
        pass

    shared(lab, tmp_path, master, then)


def test_a_client_of_a_shared_connection_is_killed(lab, tmp_path, master):
    async def then(channel, lost):
        os.kill(channel.pid, signal.SIGKILL)
        await lost.wait()
        gone(lab, lab.hosts[0])

    shared(lab, tmp_path, master, then)


def test_no_connection_is_left_for_others(lab, tmp_path):
    path = lab.folder / "none"
    sharing = f"ControlPath {path}\nControlMaster auto\nControlPersist yes\n"
    config = lab.configure("persisting", before=sharing)

    async def test():
        async with worker_on(lab, lab.hosts[0], tmp_path, config=config):
            assert not path.exists()

    run(test())


# From a declaration to the record.

SCRIPT = """
import os, signal
print("on", os.uname().nodename, flush=True)
signal.pause()
"""


@pytest.fixture
def spread(lab, tmp_path, monkeypatch):
    """A cluster of two workers on the first two of three hosts."""
    monkeypatch.chdir(tmp_path)
    words = ["-F", str(lab.config)]
    with Cluster(
        2, engine="ssh", hosts=lab.names, scheduler=words, warm=False, restarts=1
    ) as cluster:
        yield cluster


def clients_by_host(lab):
    """Return the processes of ssh by the host that they reach."""
    found = {pid: command(pid).split() for pid in labelled()}
    own = {pid: words for pid, words in found.items() if words[:1] == ["ssh"]}
    return {words[words.index("--") - 1]: pid for pid, words in own.items()}


def said(run, task):
    try:
        return run.logs(task).decode().split()
    except NoRun:  # it is not started yet
        return []


def hosts_of(run):
    eventually(lambda: all(len(said(run, task)) == 2 for task in (0, 1)), "first lines")
    return [said(run, task)[1] for task in (0, 1)]


def test_a_run_moves_to_another_host_when_one_is_lost(lab, spread, tmp_path):
    run = spread.run("main.py", source=SCRIPT)
    assert hosts_of(run) == lab.names[:2]
    os.kill(clients_by_host(lab)[lab.names[0]], signal.SIGKILL)
    moved = [["on", name] for name in lab.names[1:]]
    eventually(lambda: [said(run, task) for task in (0, 1)] == moved, "second attempt")
    assert run.status().attempt == 2
    spread.close()
    gone(lab, *lab.hosts)


def test_nothing_is_left_when_the_supervisor_is_killed(lab, spread):
    hosts_of(spread.run("main.py", source=SCRIPT))
    supervisor = parent(clients_by_host(lab)[lab.names[0]])
    os.kill(supervisor, signal.SIGKILL)
    gone(lab, *lab.hosts)
    eventually(lambda: not clients_by_host(lab), "end of the clients")


def test_a_cluster_that_cannot_start_says_why(lab, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["-F", str(lab.config), "-p", "1"]
    with pytest.raises(SupervisorError, match=f"{lab.names[0]} .*Connection refused.* First make"):
        Cluster(2, engine="ssh", hosts=lab.names[:2], scheduler=words)


def test_a_machine_with_a_disk_of_its_own(lab, tmp_path, monkeypatch):
    """It gets the code and the files that are named, and its log, stacks and report come back."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.txt").write_text("some data\n" * 20_000)
    (tmp_path / "mine.py").write_text("word = 'imported'")
    source = """
import os, pathlib, sys
import mine
print(mine.word, len(pathlib.Path("data/a.txt").read_text()), os.uname().nodename)
print("x" * 3_000_000)
pathlib.Path("model.txt").write_text("weights")
pathlib.Path("saved/variables").mkdir(parents=True)
pathlib.Path("saved/variables/data").write_bytes(bytes(range(256)) * 2_000)
raise ValueError("on its own disk")
"""
    words = ["-F", str(lab.config)]
    far = lab.names[-1:]
    files = ["data", "mine.py"]
    with Cluster(1, engine="ssh", hosts=far, scheduler=words, warm=False, files=files) as cluster:
        run = cluster.run("main.py", source=source)
        with pytest.raises(WorkerFailed, match="on its own disk") as failure:
            run.wait(120)
        first, second, *rest = run.logs(0).decode().splitlines()
        assert first == f"imported 200000 {far[0]}"
        assert second == "x" * 3_000_000
        assert rest[-1] == "ValueError: on its own disk"
        assert "main.py" in str(failure.value)
        assert not (tmp_path / "model.txt").exists()
        assert cluster.fetch(0, "model.txt").read_text() == "weights"
        saved = cluster.fetch(0, "saved", to="results")
    assert saved == tmp_path / "results"
    assert (saved / "variables" / "data").read_bytes() == bytes(range(256)) * 2_000


# Accidents: what is told, that a restart waits for the end of what was, and what is left.


def client(host, mark):
    kill(clients("ssh", host))


def session(host, mark):
    """What serves the login."""
    kill([one.pid for one in host.processes() if command(one.pid).startswith("sshd: root@")])


@pytest.mark.parametrize(
    ("accident", "symptoms"),
    [
        (worker, [Symptom.KILLED]),
        (agent, [Symptom.AGENT_LOST]),
        (client, [Symptom.AGENT_LOST]),
        (session, [Symptom.HOST_LOST]),
        (link, LOST),
        (way_there, LOST),
        (way_back, LOST),
    ],
    ids=lambda one: getattr(one, "__name__", None),
)
def test_a_run_goes_on_after_an_accident(lab, cluster, accident, symptoms):
    given = {"engine": "ssh", "hosts": lab.names, "scheduler": ["-F", str(lab.config)]}
    one = cluster(2, restarts=1, lease=LEASE_SECONDS, **given)
    told = had(one, lab.hosts, accident)
    assert told.finding.symptom in symptoms
    assert accident is not agent or told.cut == ["worker:1"]
    assert (told.hosts["struck"] in told.hosts["after"].values()) == (accident is worker)
    one.close()
    gone(lab)


def test_a_restart_that_cannot_use_a_host_does_not_hide_the_first_failure(lab, cluster):
    """A host is cut off, and the only spare one has no Python."""
    python = program(lab.folder, on(lab.hosts[2], "exec /no/python"))
    given = {"engine": "ssh", "hosts": lab.names, "scheduler": ["-F", str(lab.config)]}
    one = cluster(2, restarts=1, lease=LEASE_SECONDS, python=python, **given)
    told = had(one, lab.hosts, link)
    assert told.finding.symptom in LOST
    assert told.finding.host == told.hosts["struck"] == lab.names[1]
    assert set(told.hosts["after"].values()) == {lab.names[0]}
    [unused] = [one for one in told.remarks if one.symptom is Symptom.HOST_UNUSED]
    assert unused.host == lab.names[2]
    assert "/no/python: not found" in unused.detail
    one.close()
    gone(lab)


FAILS = """
import os, time
from pathlib import Path
while not Path("told").exists():
    time.sleep(0.001)
first, process = Path("told").read_text().split()
if os.environ["MWMAGIC_TASK"] != first:
    while Path("/proc", process).exists():
        time.sleep(0.001)
    time.sleep(0.02)
os._exit(3)
"""
"""One task fails 20 ms after the agent of the other one's host has seen that fail."""

ROUNDS = 2


@pytest.mark.parametrize("task", ["worker:0", "worker:1"])
def test_the_first_failure_is_found_across_hosts_whose_clocks_differ(lab, cluster, tmp_path, task):
    given = {"engine": "ssh", "hosts": lab.names, "scheduler": ["-F", str(lab.config)]}
    one = cluster(2, **given)  # on the host that is ahead, and on one that is not
    for _ in range(ROUNDS):
        tmp_path.joinpath("told").unlink(missing_ok=True)
        run = one.run("main.py", source=FAILS)
        eventually(lambda run=run: all(t.pid for t in run.status().tasks.values()), "workers")
        pids = {name: each.pid for name, each in run.status().tasks.items()}
        os.kill(one._process.pid, signal.SIGSTOP)  # it would end the other at the first failure
        draft = tmp_path / "draft"
        draft.write_text(f"{task} {pids[task]}")
        draft.rename(tmp_path / "told")
        eventually(lambda pids=pids: not any(map(alive, pids.values())), "both ends")
        os.kill(one._process.pid, signal.SIGCONT)
        with pytest.raises(WorkerFailed):
            run.wait(120)
        assert run.cause.task == task
        ends = {each["task"]: each["moment"] for each in run.record.events("exited")}
        assert min(ends, key=ends.get) == task
        assert max(ends.values()) - min(ends.values()) < AHEAD_SECONDS / 2


def test_a_trial_moves_to_another_host_and_the_other_one_goes_on(lab, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hosts = {"engine": "ssh", "hosts": ",".join(lab.names[:2]), "restarts": 1}
    words = ["--scheduler", f"-F {lab.config}", "--parallel", "auto"]
    sweep = sweeping.begun("-n", "1", *words, "main.py", "units=1,2,3,4", **hosts)
    assert sweeping.two_are_going() == [{name} for name in lab.names[:2]]
    os.kill(clients_by_host(lab)[lab.names[1]], signal.SIGKILL)
    eventually(lambda: sweeping.places() == [{lab.names[0]}] * 2, "second attempt")
    text, _ = sweeping.ended(sweep)
    assert "trial 2: attempt 1 failed: " in text
    assert "trial 1: attempt" not in text
    gone(lab)


def test_nothing_is_left_when_the_kernel_is_killed(lab, cluster):
    given = {"engine": "ssh", "hosts": lab.names, "scheduler": ["-F", str(lab.config)]}
    with owned(lab.hosts, given) as kernel:
        os.kill(kernel, signal.SIGKILL)
    gone(lab)


@pytest.mark.tensorflow
def test_a_training_across_hosts_gives_the_numbers_of_one(lab, tmp_path, monkeypatch):
    """One has another clock, one TensorFlow elsewhere, and one neither this disk nor the code."""
    monkeypatch.chdir(tmp_path)
    with Cluster(3, warm=False) as here:
        _, expected = trained(here)
    words = ["-F", str(lab.config)]
    python = program(lab.folder, elsewhere(lab.folder, lab.hosts[1]))
    with Cluster(3, engine="ssh", hosts=lab.names, scheduler=words, python=python) as there:
        hosts, found = trained(there)
        assert_it_is_found_elsewhere_on_one(there.latest)
    assert hosts == lab.names
    assert found == expected
    assert len(set(found)) == 1


JAX = """
import os
import keras
keras.distribution.initialize()
import jax
import numpy as np
from jax.experimental.multihost_utils import process_allgather
ranks = process_allgather(np.array([jax.process_index() + 1]))
print("on", os.uname().nodename, int(ranks.sum()))
"""
TORCH = """
import os
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(total)
print("on", os.uname().nodename, int(total.item()))
dist.destroy_process_group()
"""


@pytest.mark.tensorflow
@pytest.mark.parametrize(("framework", "source"), [("jax", JAX), ("torch", TORCH)])
def test_another_frameworks_tasks_meet_across_hosts(lab, cluster, monkeypatch, framework, source):
    monkeypatch.setattr(sys, "path", [*sys.path, str(TORCH_FOLDER)])  # it only must be found here
    hosts = lab.names[:2]
    given = {"engine": "ssh", "hosts": hosts, "scheduler": ["-F", str(lab.config)]}
    env = {"PYTHONPATH": str(TORCH_FOLDER)} if framework == "torch" else {}
    run = cluster(2, framework=framework, env=env, **given).run("main.py", source=source)
    run.wait(120)
    for task, name in enumerate(hosts):
        assert f"on {name} 3" in run.logs(task).decode().splitlines()
