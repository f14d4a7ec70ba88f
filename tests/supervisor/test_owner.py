"""How a cluster ends: with its owner, unless it is detached; and what it never leaves behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from operator import le
from pathlib import Path
from textwrap import dedent

import pytest
from processes import LINGERS, agents_of, alive, children, eventually

from mwmagic import Cluster, Task, runs
from mwmagic.client import starting
from mwmagic.client.lookup import attach
from mwmagic.errors import ClusterEnding, NoCluster, SupervisorError, SupervisorLost, WorkerFailed
from mwmagic.model.messages import Start
from mwmagic.model.options import ClusterOptions

SLEEP = "import time; print('up', flush=True); time.sleep(600)"

ENDS = {
    "closes": "cluster.close(); time.sleep(600)",
    "returns": "",
    "raises": "raise ValueError",
    "exits at once": "os._exit(0)",
    "is killed": "os.kill(os.getpid(), signal.SIGKILL)",
    "is killed while a child of its holds the socket": (
        "child = os.fork() or time.sleep(600); open('fork', 'w').write(str(child)); "
        "os.kill(os.getpid(), signal.SIGKILL)"
    ),
    "hangs up": "cluster._connection.close(); time.sleep(600)",
}


def gone(pids):
    return not [pid for pid in pids if alive(pid)]


@pytest.mark.slow
@pytest.mark.parametrize("end", ENDS)
def test_everything_ends_when_the_owner(own, end):
    owner = own()
    family = [owner.supervisor, *agents_of(owner.supervisor), *owner.workers()]
    assert len(family) == 8
    owner.does(ENDS[end])
    eventually(lambda: gone(family), "end of everybody")
    eventually(lambda: not list(starting.socket_directory().iterdir()), "end of the socket")
    assert runs()[-1].state == "stopped"
    fork = Path("fork")
    if fork.exists():
        os.kill(int(fork.read_text()), signal.SIGKILL)


SAVE = """
import os, pathlib, signal, sys, time
def save(*_):
    time.sleep(0.3)
    pathlib.Path("saved-" + os.environ["MWMAGIC_TASK"]).touch()
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
pathlib.Path("up-" + os.environ["MWMAGIC_TASK"]).touch()
time.sleep(600)
"""


@pytest.mark.slow
@pytest.mark.parametrize("end", ["returns", "raises", "closes"])
def test_an_owner_that_ends_lets_the_workers_save(own, end):
    owner = own()
    owner.workers()
    Path("main.py").write_text(SAVE)
    up = "len([name for name in os.listdir() if name.startswith('up-')]) == 2"
    wait = f"[time.sleep(0.01) for _ in iter(lambda: {up}, True)]; "
    owner.does("run.stop(); run = cluster.run('main.py'); " + wait + ENDS[end])
    eventually(lambda: gone([owner.supervisor]), "end of the supervisor")
    assert sorted(path.name for path in Path().glob("saved-*")) == [
        "saved-worker:0",
        "saved-worker:1",
    ]


@pytest.mark.slow
def test_a_signal_to_all_processes_lets_the_workers_save_although_the_owner_ends_first(own):
    owner = own()
    owner.workers()
    Path("main.py").write_text(SAVE)
    owner.does("run.stop(); cluster.run('main.py'); time.sleep(600)")
    eventually(lambda: len(list(Path().glob("up-*"))) == 2)
    agents = agents_of(owner.supervisor)
    owner.child.kill()
    owner.child.wait()
    for pid in [owner.supervisor, *agents]:
        os.kill(pid, signal.SIGTERM)
    eventually(lambda: gone([owner.supervisor, *agents]), "end of the supervisor")
    assert len(list(Path().glob("saved-*"))) == 2


@pytest.mark.slow
def test_what_an_owner_forks_ends_nothing(own):
    owner = own()
    family = [owner.supervisor, *agents_of(owner.supervisor), *owner.workers()]
    fork = "child = os.fork() or sys.exit(); os.waitpid(child, 0); "
    owner.does(fork + "os.mkdir('forked'); time.sleep(600)")
    eventually(lambda: Path("forked").exists())
    eventually(lambda: runs()[-1].state == "running")  # which is written a little later
    assert all(map(alive, family))


@pytest.mark.slow
def test_a_supervisor_that_is_asked_to_end_lets_the_workers_save(cluster):
    one = cluster(grace=60)
    one.run("main.py", source=SAVE)
    eventually(lambda: len(list(Path().glob("up-*"))) == 2)
    os.kill(one._process.pid, signal.SIGTERM)
    with pytest.raises(SupervisorLost):
        one._connection.wait(lambda _: False, 120)
    assert len(list(Path().glob("saved-*"))) == 2


@pytest.mark.slow
@pytest.mark.parametrize("whole", [False, True], ids=["agent", "group"])
def test_an_agent_that_is_asked_to_end_lets_the_workers_save(cluster, whole):
    """Slurm and systemd send SIGTERM to every process of a job, the agent among them."""
    one = cluster(warm=False, grace=60)
    run = one.run("main.py", source=SAVE)
    eventually(lambda: len(list(Path().glob("up-*"))) == 2)
    supervisor = one._process.pid
    for pid in [*agents_of(supervisor), *([supervisor] if whole else [])]:
        os.kill(pid, signal.SIGTERM)
    eventually(lambda: run.over, "end of the run")
    assert len(list(Path().glob("saved-*"))) == 2
    assert whole or run.cause.known == "agent-lost"


@pytest.mark.slow
def test_a_supervisor_that_is_asked_to_end_twice_does_not_wait(cluster):
    one = cluster(grace=600)
    deaf = SAVE.replace("SIGTERM, save", "SIGTERM, signal.SIG_IGN")
    run = one.run("main.py", source=deaf)
    eventually(lambda: len(list(Path().glob("up-*"))) == 2)
    os.kill(one._process.pid, signal.SIGTERM)
    eventually(lambda: run.state == "ending")
    os.kill(one._process.pid, signal.SIGTERM)
    with pytest.raises(SupervisorLost):
        one._connection.wait(lambda _: False, 120)
    assert run.state == "stopped"


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_everything_ends_when_the_supervisor_is_asked_to(cluster, number):
    one = cluster()
    run = one.run("main.py", source=SLEEP)
    os.kill(one._process.pid, number)
    with pytest.raises(SupervisorLost):
        one._connection.wait(lambda _: False, 120)
    assert run.state == "stopped"
    assert run.record.state == "stopped"


@pytest.mark.slow
def test_workers_end_when_the_supervisor_is_killed(own):
    owner = own()
    family = [owner.supervisor, *agents_of(owner.supervisor), *owner.workers()]
    os.kill(owner.supervisor, signal.SIGKILL)
    eventually(lambda: gone(family), "end of everybody")
    eventually(lambda: runs()[-1].state == "lost")


@pytest.mark.slow
def test_a_lost_supervisor_is_reported(cluster):
    one = cluster()
    run = one.run("main.py", source=SLEEP)
    os.kill(one._process.pid, signal.SIGKILL)
    with pytest.raises(SupervisorLost, match="declare the cluster again"):
        run.wait(120)
    assert one.closed
    with pytest.raises(SupervisorLost):
        one.run("main.py", source=SLEEP)
    with pytest.raises(SupervisorLost):
        run.stop()
    eventually(lambda: run.record.state == "lost", "end of the supervisor")
    assert repr(one).endswith("its supervisor was killed, and run 1 was lost with it")
    one.close()
    assert not list(starting.socket_directory().iterdir())


@pytest.mark.slow
def test_a_cluster_closes_though_its_supervisor_hangs(cluster, monkeypatch):
    monkeypatch.setattr("mwmagic.client.ending.REPLY_SECONDS", 0.2)
    monkeypatch.setattr("mwmagic.client.connection.Connection._wake", lambda _: None)
    one = cluster()
    [agent] = agents_of(one._process.pid)
    os.kill(one._process.pid, signal.SIGSTOP)
    one.close()
    assert one.closed
    assert gone([one._process.pid, agent])


@pytest.mark.slow
def test_a_lost_agent_fails_the_run_and_the_next_one_works(cluster):
    one = cluster(2)
    code = """
        import os, subprocess, sys, time
        sleeper = [sys.executable, "-c", "import time; time.sleep(600)"]
        for env in (None, {}):  # without one it carries no mark of ours
            helper = subprocess.Popen(sleeper, start_new_session=True, env=env)
            print(helper.pid, end=" ", flush=True)
        print(flush=True)
        time.sleep(600)
    """
    run = one.run("main.py", source=dedent(code))
    logs = [run.directory / f"attempt-1/worker-{index}.log" for index in (0, 1)]
    eventually(lambda: all(log.exists() and b"\n" in log.read_bytes() for log in logs))
    helpers = [int(word) for log in logs for word in log.read_text().split()]
    assert len(helpers) == 4
    before, [agent] = one.spec, agents_of(one._process.pid)
    os.kill(agent, signal.SIGKILL)
    with pytest.raises(WorkerFailed, match=r"worker:[01] lost with its agent on localhost"):
        run.wait(120)
    eventually(lambda: gone(helpers), "end of the helpers")
    again = one.run("main.py", source="print('back')").wait(120)
    assert again.logs(1) == b"back\n"
    assert not set(one.spec.addresses.values()) & set(before.addresses.values())
    assert agents_of(one._process.pid) != [agent]
    assert len(children(one._process.pid)) == 1


@pytest.mark.slow
def test_a_lost_agent_is_a_failure_that_a_restart_repairs(cluster):
    one = cluster(2, restarts=1)
    code = """
        import os, time
        if os.environ["MWMAGIC_ATTEMPT"] == "1":
            time.sleep(600)
        print(os.environ["TF_CONFIG"])
    """
    run = one.run("main.py", source=dedent(code))
    eventually(lambda: run.status().tasks["worker:1"].pid)
    before, [agent] = one.spec, agents_of(one._process.pid)
    os.kill(agent, signal.SIGKILL)
    run.wait(120)
    assert run.status().attempt == 2
    assert run.logs(0).decode().strip() == one.tf_config(0)
    assert one.spec != before


@pytest.mark.slow
def test_an_agent_lost_between_runs_is_replaced(cluster):
    one = cluster(2)
    [agent] = agents_of(one._process.pid)
    os.kill(agent, signal.SIGKILL)
    eventually(lambda: not children(one._process.pid), "end of the agent")
    for _ in range(20):  # turns in which the supervisor takes that in
        one._connection.request("snapshot")
    assert one.run("main.py", source="print('well')").wait(120).logs(0) == b"well\n"


@pytest.mark.slow
def test_a_detached_cluster_outlives_its_owner_and_gets_another(own):
    owner = own("--detach")
    family = [owner.supervisor, *agents_of(owner.supervisor), *owner.workers()]
    with pytest.raises(SupervisorError, match="has an owner already"):
        Cluster.attach()
    owner.child.kill()
    owner.child.wait()
    eventually(lambda: attached() is not None, "new owner")
    with Cluster.attach() as cluster:
        assert cluster.options.detach
        assert cluster.tasks == (Task("worker", 0), Task("worker", 1))
        run = cluster.latest
        assert (run.number, run.state) == (1, "running")
        with pytest.raises(SupervisorError, match="has an owner already"):
            Cluster.attach()
        assert not [pid for pid in family if not alive(pid)]
        run.stop(grace=0)
        assert cluster.run("main.py", source="print('mine')").wait(120).logs(1) == b"mine\n"
    eventually(lambda: gone(family), "end of everybody")
    with pytest.raises(NoCluster, match="no detached cluster 'cluster'"):
        Cluster.attach()


@pytest.mark.slow
def test_a_cluster_that_is_ending_begins_nothing_and_is_waited_for(cluster):
    one = cluster(1, grace=60)
    run = one.run("main.py", source=LINGERS)
    eventually(Path("up").exists)
    one._connection.request("close")
    eventually(Path("saving").exists)
    with pytest.raises(ClusterEnding, match="the cluster is ending"):
        one.run("main.py", source="")
    with pytest.raises(ClusterEnding, match="the cluster is ending"):
        one.detach()
    with ThreadPoolExecutor(1) as pool:
        waits = threading.Event()
        found = pool.submit(attach, "cluster", waits.set)
        assert waits.wait(120)
        assert not found.done()
        Path("saved").touch()
        with pytest.raises(NoCluster):
            found.result(120)
    assert run.state == "stopped"


def attached():
    """Attach for a moment, unless the death of the owner has not come through."""
    try:
        cluster = Cluster.attach()
    except SupervisorError:
        return None
    cluster._connection.close()
    return cluster


@pytest.mark.slow
def test_a_cluster_is_detached_later(own):
    owner = own()
    family = [owner.supervisor, *owner.workers()]
    owner.does("cluster.detach(); os._exit(0)")
    owner.child.wait()
    assert not [pid for pid in family if not alive(pid)]
    with Cluster.attach() as cluster:
        assert cluster.options.detach
    eventually(lambda: gone(family), "end of everybody")


@pytest.mark.slow
def test_declared_variables_outlive_the_owner(cluster, tmp_path):
    cluster(1, env={"DECLARED": "yes"}, detach=True)._connection.close()
    eventually(lambda: attached() is not None, "new owner")
    with Cluster.attach() as again:
        run = again.run("main.py", source="import os; print(os.environ['DECLARED'])")
        assert run.wait(120).logs(0) == b"yes\n"


@pytest.mark.slow
def test_attaching_finds_the_cluster_of_a_directory_and_name(cluster, tmp_path):
    (tmp_path / "other").mkdir()
    cluster(1, name="here").detach()
    cluster(1, name="here", directory="other").detach()
    with Cluster.attach("here", "other") as other:
        assert other.options.root == tmp_path / "other"
    with pytest.raises(NoCluster):
        Cluster.attach("there")
    with Cluster.attach("here") as here:
        assert here.options.root == tmp_path


@pytest.mark.slow
def test_a_supervisor_that_nobody_comes_to_ends(tmp_path, nothing_survives):
    code = dedent("""
        import mwmagic.supervisor.supervisor as module
        from mwmagic.supervisor.__main__ import main
        module.OWNER_SECONDS = 0.1
        main()
    """)
    config = cluster_config(tmp_path)
    socket = starting.new_socket("orphan", tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=f"{json.dumps(str(socket))}\n{config}",
        capture_output=True,
        timeout=120,
        check=True,
        text=True,
    )
    assert '"ready"' in done.stdout
    assert not socket.exists()


def cluster_config(root):
    options = ClusterOptions(name="orphan", directory=str(root))
    return Start(options).as_line() + "\n"


@pytest.mark.slow
def test_runs_leave_no_descriptors_threads_or_zombies_in_the_supervisor(cluster):
    one = cluster(2)
    run = one.run("main.py", source="print('warm up')").wait(120)
    eventually(lambda: recorded(run), "the end of the record")
    files, threads = resources(one._process.pid)
    for _ in range(RUNS):
        run = one.run("main.py", source="print('again')").wait(120)
    eventually(lambda: recorded(run), "the end of the record")
    # A pool of threads may have grown by a thread, but not by one for each run.
    most = [files, threads + RUNS - 1]
    eventually(
        lambda: all(map(le, resources(one._process.pid), most)), "threads and descriptors to go"
    )
    [agent] = children(one._process.pid)
    assert children(agent) == []


def recorded(run):
    """Whether nothing is left to be written: threads of the supervisor do that."""
    return "git" in run.record.info


RUNS = 3


def resources(pid):
    names = (f"/proc/{pid}/fd", f"/proc/{pid}/task")
    return [len(list(Path(name).iterdir())) for name in names]


@pytest.mark.slow
def test_clusters_leave_no_descriptors_or_threads_in_the_client(cluster):
    known = threads()
    cluster(1).close()
    eventually(lambda: threads() == known, "end of the connection's thread")
    before = resources("self")
    for _ in range(2):
        one = cluster(1)
        one.run("main.py", source="print('again')").wait(120)
        one.close()
    eventually(lambda: resources("self") == before, "threads and descriptors to go")


def threads():
    return [thread.name for thread in threading.enumerate()]
