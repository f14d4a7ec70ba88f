"""What slows down one of two real workers is named, and an undisturbed training is not accused."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from network import Network
from slowed import LIMITS, PROGRAM, limited

from mwmagic import Cluster
from mwmagic.client.records import explained
from mwmagic.model.findings import SlowCause, Slowdown

pytestmark = [pytest.mark.slow, pytest.mark.tensorflow]


def test_the_task_its_line_and_what_it_costs_are_named_and_recorded(warm_pair, tmp_path):
    params = {"CAUSE": "input-waits", "SLOW": "worker:1"}
    run = warm_pair.run("main.py", source=PROGRAM, cwd=tmp_path, params=params)
    run.wait(timeout=240)
    slow = run.status().slow
    assert (slow.cause.value, slow.task, slow.when) == ("input-waits", "worker:1", "always")
    assert slow.at.endswith(" in decode")
    assert slow.without < slow.step
    found, lines = explained(run.record)
    assert found["slow"]["task"] == "worker:1"
    assert "worker:1 holds up every step" in lines[-1]
    used = run.usage(frame=True)
    assert {*used["task"]} == {"worker:0", "worker:1"}
    assert used["cpus"].between(0, os.cpu_count()).all()
    assert used["memory"].min() > 50 * 2**20


def test_callbacks_of_one_task_are_named_without_the_waiting_of_the_other(warm_pair, tmp_path):
    params = {"CAUSE": "callbacks", "SLOW": "worker:0"}
    run = warm_pair.run("main.py", source=PROGRAM, cwd=tmp_path, params=params)
    run.wait(timeout=240)
    slow = run.status().slow
    assert (slow.cause.value, slow.task) == ("callbacks", "worker:0")
    assert slow.at.endswith(" in besides")


def test_an_undisturbed_training_is_not_accused(warm_pair, tmp_path):
    run = warm_pair.run("main.py", source=PROGRAM, cwd=tmp_path)
    run.wait(timeout=240)
    assert run.status().slow is None


@pytest.fixture
def groups():
    with limited() as made:
        if not made:
            pytest.skip("no control groups with limits can be made here")
        yield made


def test_limits_of_cpus_and_of_memory_are_named(groups, tmp_path):
    with Cluster(2, directory=tmp_path, env=groups) as cluster:
        for cause, found in LIMITS.items():
            params = {"CAUSE": cause, "SLOW": "worker:1", "STEPS": 60}
            run = cluster.run("main.py", source=PROGRAM, cwd=tmp_path, params=params)
            run.wait(timeout=240)
            slow = run.status().slow
            assert (slow.cause.value, slow.task) == (found, "worker:1")


SLOW_LINK = """
import json, sys
from pathlib import Path
from mwmagic import Cluster
from slowed import PROGRAM

with Cluster(2, directory=Path.cwd()) as cluster:
    run = cluster.run("main.py", source=PROGRAM, params={"STEPS": 60})
    run.wait(timeout=120)
    print(json.dumps(run.status().slow and run.status().slow.as_json()))
"""


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("tc"), reason="it slows a link as root")
def test_a_slow_link_is_what_all_tasks_wait_for(tmp_path):
    limit = "tc qdisc add dev lo root tbf rate 200mbit burst 256k latency 100ms"
    words = ["sh", "-c", f'ip link set lo up && {limit} && exec "$@"', "sh"]
    program = [sys.executable, "-c", SLOW_LINK]
    done = subprocess.run(
        ["unshare", "--net", *words, *program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
        capture_output=True,
        text=True,
        check=True,
        timeout=200,
    )
    found = Slowdown.from_json(json.loads(done.stdout.splitlines()[-1]))
    assert (found.cause, found.task, found.peer) == (SlowCause.COLLECTIVE, None, "127.0.0.1")
    assert found.share > 0.5
    assert found.rate < 25e6 < 50 * found.sent  # no more than the link carries


ENTERS = ("nsenter", "--net=/run/netns/{host}", "--", "{python}", "-")


@pytest.fixture
def network():
    one = Network()
    try:
        one.up()
        yield one
    finally:
        one.down()


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("tc"), reason="it slows a link as root")
def test_one_slow_link_of_three_hosts_is_named_with_its_ends(network, tmp_path):
    hosts = [f"{host.name}={host.address}" for host in network.hosts]
    slow = network.hosts[1]
    with Cluster(3, directory=tmp_path, engine="command", hosts=hosts, scheduler=ENTERS) as cluster:
        found = []
        for kilobits in (None, 100_000):
            if kilobits:
                slow.throttle(kilobits)
            run = cluster.run("main.py", source=PROGRAM, params={"STEPS": 40})
            run.wait(timeout=200)
            found.append(run.status().slow)
        [at] = [name for name, task in run.status().tasks.items() if slow.address in task.address]
    before, after = found
    assert before is None or before.cause is not SlowCause.LINK
    assert after.cause is SlowCause.LINK
    assert at == after.task or after.peer == slow.address
    assert after.rate < 13e6  # no more than the link carries
