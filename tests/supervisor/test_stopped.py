"""How things end while a process that has a part in it is stopped, as SIGSTOP and Ctrl-Z do."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from textwrap import dedent

import psutil
import pytest
from processes import agents_of, alive, eventually

from mwmagic.errors import SupervisorError, SupervisorLost

SECONDS = 45.0
"""What any end may take here: less than a request waits for its answer."""

WORKER = """
import os, pathlib, signal, subprocess, sys, time
sleeper = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"]
helper = subprocess.Popen(sleeper, start_new_session=True, env={})
def save(*_):
    pathlib.Path("saved").touch()
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print(os.getpid(), helper.pid, flush=True)
time.sleep(600)
"""


@pytest.fixture
def running(cluster):
    """A cluster whose only worker trains and saves when it is asked to end, and its processes."""
    one = cluster(1, grace=30)
    run = one.run("main.py", source=dedent(WORKER))
    log = run.directory / "attempt-1/worker-0.log"
    eventually(lambda: log.exists() and b"\n" in log.read_bytes())
    [agent] = agents_of(one._process.pid)
    return one, run, agent, [int(word) for word in log.read_text().split()]


def stop(*pids):
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
        eventually(lambda: psutil.Process(pid).status() == psutil.STATUS_STOPPED)  # noqa: B023


def gone(*pids):
    return not [pid for pid in pids if alive(pid)]


def taken(do):
    began = time.monotonic()
    do()
    return time.monotonic() - began


@pytest.mark.slow
def test_a_run_is_stopped_with_its_grace_though_the_agent_was_stopped(running):
    one, run, agent, workers = running
    stop(agent)
    assert taken(run.stop) < SECONDS
    assert run.state == "stopped"
    assert Path("saved").exists()
    assert gone(*workers)
    assert agents_of(one._process.pid) == [agent]


@pytest.mark.slow
def test_a_run_is_stopped_though_the_supervisor_was_stopped(running):
    one, run, _, workers = running
    stop(one._process.pid)
    assert taken(run.stop) < SECONDS
    assert Path("saved").exists()
    assert gone(*workers)


ACTS = {
    "kill": lambda run: run.kill(0, signal.SIGUSR2),
    "restart": lambda run: run.cluster.restart(),
    "update": lambda run: run.cluster.update(restarts=1),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ACTS)
def test_a_supervisor_that_was_stopped_obeys(running, name):
    one, run, *_ = running
    stop(one._process.pid)
    assert taken(lambda: ACTS[name](run)) < SECONDS


@pytest.mark.slow
def test_a_look_lets_a_supervisor_that_was_stopped_sleep_and_says_so_soon(running):
    one, run, *_ = running
    supervisor = one._process.pid
    stop(supervisor)
    said = f"process {supervisor}, is stopped; `kill -CONT {supervisor}` resumes it"
    with pytest.raises(SupervisorError, match=said):
        run.stacks()
    assert psutil.Process(supervisor).status() == psutil.STATUS_STOPPED


@pytest.mark.slow
@pytest.mark.parametrize("asleep", ["supervisor", "agent", "both"])
def test_a_cluster_ends_whichever_process_was_stopped(running, asleep):
    one, _, agent, workers = running
    supervisor = one._process.pid
    pids = {"supervisor": [supervisor], "agent": [agent], "both": [supervisor, agent]}[asleep]
    stop(*pids)
    assert taken(one.shutdown) < SECONDS
    assert gone(supervisor, agent, *workers)
    assert Path("saved").exists()


@pytest.mark.slow
def test_an_agent_that_was_stopped_ends_with_its_supervisor(running):
    one, _, agent, workers = running
    stop(agent)
    os.kill(one._process.pid, signal.SIGKILL)
    with pytest.raises(SupervisorLost):
        one._connection.wait(lambda _: False, 120)
    eventually(lambda: gone(agent, *workers), "end of the agent and its workers")


@pytest.mark.slow
def test_a_supervisor_that_was_stopped_ends_with_its_owner(own):
    owner = own()
    family = [owner.supervisor, *agents_of(owner.supervisor), *owner.workers()]
    stop(owner.supervisor)
    os.kill(owner.pid, signal.SIGKILL)
    eventually(lambda: gone(*family), "end of the supervisor and its workers")
