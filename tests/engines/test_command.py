"""The command engine: what a user may write after ``--``."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import pytest
from accidents import LOST, agent, clients, had, kill, owned, worker
from network import AHEAD_SECONDS
from processes import children
from pythons import program
from training import trained

from mwmagic import Cluster
from mwmagic.engines import agent_command, engine_for
from mwmagic.engines.channel import Channel
from mwmagic.errors import ClusterError, SupervisorError
from mwmagic.model.cluster import make_tasks
from mwmagic.model.findings import Symptom
from mwmagic.model.options import ClusterOptions

pytestmark = pytest.mark.usefixtures("nothing_survives")


async def host(*words, **options):
    declared = {"directory": "/", "engine": "command", "hosts": ["a"], "scheduler": words}
    engine = engine_for(ClusterOptions(**declared, **options))
    [one] = await engine.allocate(make_tasks(1), avoid=(), notify=print)
    return one


def command(*words, **options):
    return asyncio.run(host(*words, **options)).command


AGENT = agent_command("/opt/python")


@pytest.mark.parametrize(
    ("words", "filled"),
    [
        (["env", "{python}", "-"], ["env", *AGENT]),
        (["env", "{agent}"], ["env", *AGENT]),
        (["env", "{agent}", "-"], ["env", *AGENT, "-"]),
        (["env", "X={host}.{host}", "--", "{python}", "-"], ["env", "X=a.a", "--", *AGENT]),
        (["env", "P={python}", "{agent}"], ["env", "P=/opt/python", *AGENT]),
        (["env", "A=$HOME {}", "{agent}"], ["env", "A=$HOME {}", *AGENT]),
    ],
)
def test_a_machine_has_the_command_with_its_names(words, filled):
    assert command(*words, python="/opt/python") == tuple(filled)


def test_python_is_by_default_the_path_of_this_one():
    assert command("env", "{python}", "-")[1] == sys.executable


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "write the command that reaches a machine after --, as in .* kubectl exec -i {host}"),
        (["env", "{node}", "{agent}"], "has {node}; it may have {host}, {python} and {agent}"),
        (["env", "{}", "x"], "must start the agent once: let it end with {python} -, or .*{agent}"),
        (["env", "{python}"], "must start the agent once"),
        (["env", "{agent}", "{agent}"], "must start the agent once"),
        (["env", "x{agent}"], "must start the agent once"),
        (["no-such-program", "{agent}"], "no program 'no-such-program' on this machine; install"),
    ],
)
def test_a_command_that_cannot_work_is_refused(words, said):
    with pytest.raises(ClusterError, match=said):
        command(*words)


def test_an_error_has_the_words_of_the_command():
    said = r"on a ended: .*/nowhere/a: No such .* terminal, .*: nsenter .* --version$"

    async def test():
        one = await host("nsenter", "--net=/nowhere/{host}", "{python}", "-")
        with pytest.raises(SupervisorError, match=said):
            await Channel.open(one)

    asyncio.run(test())


# On hosts of a network, with clocks that are ahead.

ENTERS = (
    *("nsenter", "--net=/run/netns/{host}", "--", "unshare", "--uts", "--fork", "--kill-child"),
    *("--time", "--monotonic", str(AHEAD_SECONDS), "--boottime", str(AHEAD_SECONDS), "--"),
    *("sh", "-c", 'hostname "$0" && exec "$@"', "{host}", "{python}", "-"),
)


@pytest.mark.slow
def test_a_python_that_is_named_has_packages_of_its_own(cluster, tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    (own / "torch.py").write_text("word = 'imported'")
    python = program(tmp_path, f"export PYTHONPATH={own}")
    words = ["env", "{python}", "-"]
    one = cluster(1, engine="command", hosts=["localhost"], scheduler=words, python=python)
    run = one.run("main.py", source="import torch\nprint(torch.word)")
    run.wait(120)
    assert run.logs(0) == b"imported\n"


def hosts(lab):
    named = [f"{host.name}={host.address}" for host in lab.hosts]
    return {"engine": "command", "hosts": named, "scheduler": ENTERS}


def client(host, mark):
    kill(clients("unshare", host))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("accident", "symptoms"),
    [(worker, [Symptom.KILLED]), (agent, LOST), (client, LOST)],
    ids=lambda one: getattr(one, "__name__", None),
)
def test_a_run_goes_on_after_an_accident(lab, cluster, accident, symptoms):
    told = had(cluster(2, restarts=1, **hosts(lab)), lab.hosts, accident)
    assert told.finding.symptom in symptoms
    assert (told.hosts["struck"] in told.hosts["after"].values()) == (accident is worker)


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["kernel", "supervisor"])
def test_nothing_is_left_when_a_process_here_is_killed(lab, cluster, victim):
    with owned(lab.hosts, hosts(lab)) as kernel:
        os.kill(kernel if victim == "kernel" else children(kernel)[0], signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.tensorflow
def test_a_training_across_hosts_gives_the_numbers_of_one(lab, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Cluster(3) as here:  # one import for its three tasks
        _, expected = trained(here)
    with Cluster(3, warm=False, **hosts(lab)) as there:
        on, found = trained(there)
    assert on == lab.names
    assert found == expected
