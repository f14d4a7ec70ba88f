"""Exported runs, done by a Python that has no mwmagic; of Slurm, what it sets and starts."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys

import pytest
from processes import command, eventually, labelled, running

from mwmagic import Cluster, clusters, runs
from mwmagic.client.export import Shared, export, export_record
from mwmagic.errors import ClusterError, SupervisorError
from mwmagic.model.machine import Machine
from mwmagic.model.options import ClusterOptions
from mwmagic.record import RunDirectory
from mwmagic.supervisor.preparation import shares

MEET = """
import json, os, socket, sys, time
try:
    import mwmagic
except ImportError:
    pass
else:
    sys.exit("this Python was to have no mwmagic")
config = json.loads(os.environ["TF_CONFIG"])
kind, index = config["task"]["type"], config["task"]["index"]
host, port = config["cluster"][kind][index].split(":")
own = socket.create_server((host, int(port)))
if kind == "evaluator":
    print("nothing to evaluate", flush=True)
    open("evaluated", "w").close()
    sys.exit(1)
while kind == "chief" and not os.path.exists("evaluated"):
    time.sleep(0.01)  # or its end would end the evaluator first
if kind == "ps":
    time.sleep(600)
for address in sum(config["cluster"].values(), []):
    port = int(address.split(":")[1])
    while socket.socket().connect_ex((host, port)) and not os.path.exists("done-1"):
        time.sleep(0.01)  # until that task listens too, or is done already
print(kind, index, "met", sys.argv[1:], os.environ["EPOCHS"], os.environ["OMP_NUM_THREADS"])
sys.stdout.flush()
while not os.path.exists("done-1") and index == 0:
    time.sleep(0.01)
open(f"done-{index}", "w").close()
"""
FAIL = """
import json, os, sys, time
index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
if index == 1:
    sys.exit(7)
if not os.fork():
    time.sleep(600)
time.sleep(600)
"""


def config(framework="tensorflow", gpus=None, devices=0, **shape):
    shape = {"workers": 2, **shape}
    options = ClusterOptions(framework=framework, gpus=gpus, devices=devices, **shape)
    divided = shares(options.members, Machine(8), {}, {}, gpus=gpus and 0, threads=2)
    return Shared(options, divided)


@pytest.fixture
def shell(tmp_path):
    """Run a script beside a program, with a Python that finds nothing but its own library."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -S "$@"\n')
    python.chmod(0o755)

    def run(text, program, **env):
        (tmp_path / "main.py").write_text(program)
        (tmp_path / "main.sh").write_text(text)
        env = {**os.environ, "PYTHON": str(python), **env}
        return subprocess.run(
            ["bash", "main.sh"], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
        )

    return run


@pytest.mark.slow
def test_the_script_starts_every_task_and_they_meet(shell, tmp_path):
    text = export("script", config(), ["main.py", "it's", "100%"], {"EPOCHS": "3; $(touch no)"})
    done = shell(text, MEET)
    logs = {path.name: path.read_text() for path in (tmp_path / "logs").iterdir()}
    assert (done.returncode, done.stderr) == (0, ""), logs
    assert logs == {
        f"worker-{index}.log": f"worker {index} met [\"it's\", '100%'] 3; $(touch no) 2\n"
        for index in (0, 1)
    }
    assert "MWMAGIC" not in text


@pytest.mark.slow
def test_when_a_task_fails_the_script_fails_and_ends_the_others(shell, nothing_survives):
    done = shell(export("script", config(), ["main.py"], {}), FAIL)
    assert done.returncode == 7
    assert "worker-1 ended with code 7; see logs/worker-1.log" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_the_script_and_every_task(tmp_path, nothing_survives, number):
    (tmp_path / "main.py").write_text(FAIL.replace("index == 1", "False"))
    text = export("script", config(), ["main.py"], {})
    env = {**os.environ, "PYTHON": sys.executable}
    with running(["bash", "-c", text], cwd=tmp_path, env=env) as script:
        eventually(lambda: sum("main.py" in command(pid) for pid in labelled()) >= 4, "tasks")
        script.send_signal(number)
        assert script.wait(120) == 128 + (15 if number == signal.SIGHUP else number)


@pytest.mark.slow
def test_the_end_of_the_chief_ends_the_parameter_servers(shell, tmp_path, nothing_survives):
    (tmp_path / "done-1").touch()
    cluster = config(workers=1, chief=True, ps=1, evaluator=True)
    program = MEET.replace('kind == "ps"', 'kind in ("ps", "worker")')
    done = shell(export("script", cluster, ["main.py"], {"EPOCHS": "1"}), program)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "logs" / "chief-0.log").read_text().startswith("chief 0 met")
    assert "nothing to evaluate" in (tmp_path / "logs" / "evaluator-0.log").read_text()


SRUN = """#!/bin/sh
while [ "${1#--}" != "$1" ]; do shift; done
for rank in 0 1 2; do
    SLURM_PROCID=$rank SLURM_LOCALID=$((rank % 2)) "$@" || exit
done
"""
SHOW = """
import json, os
names = ("TF_CONFIG", "RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "JAX_PROCESS_ID",
         "JAX_COORDINATOR_ADDRESS", "EPOCHS")
print(json.dumps({name: os.environ[name] for name in names if name in os.environ}))
"""


def slurm(shell, folder, framework):
    """Return what each task of a job on two nodes sees, its launcher being a small program."""
    for name, text in {"srun": SRUN, "scontrol": "#!/bin/sh\necho n1; echo n2\n"}.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    text = export("slurm", config(framework, workers=3), ["main.py"], {"EPOCHS": "3"})
    assert "#SBATCH --ntasks=3" in text
    job = {"SLURM_JOB_ID": "40007", "SLURM_JOB_NODELIST": "n[1-2]"}
    path = f"{folder}:{os.environ['PATH']}"
    done = shell(text, SHOW, PATH=path, SLURM_STEP_TASKS_PER_NODE="2,1(x1)", **job)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.slow
def test_a_slurm_job_finds_out_which_task_is_where(shell, tmp_path):
    tasks = slurm(shell, tmp_path, "tensorflow")
    configs = [json.loads(task["TF_CONFIG"]) for task in tasks]
    workers = ["n1:20007", "n1:20008", "n2:20009"]
    assert [one["cluster"] for one in configs] == [{"worker": workers}] * 3
    assert [one["task"]["index"] for one in configs] == [0, 1, 2]
    torch = slurm(shell, tmp_path, "torch")
    assert {(one["MASTER_ADDR"], one["MASTER_PORT"]) for one in torch} == {("n1", "20007")}
    assert [(one["RANK"], one["LOCAL_RANK"]) for one in torch] == [
        ("0", "0"),
        ("1", "1"),
        ("2", "0"),
    ]
    jax = slurm(shell, tmp_path, "jax")
    assert {one["JAX_COORDINATOR_ADDRESS"] for one in jax} == {"n1:20007"}
    assert [one["EPOCHS"] for one in jax] == ["3"] * 3


def test_virtual_devices_are_a_variable_or_a_note():
    note = "the program must create the 4 of each task"
    assert note in export("script", config(devices=4), ["main.py"], {})
    assert note not in export("script", config(), ["main.py"], {})
    text = export("script", config("jax", devices=4), ["main.py"], {})
    assert note not in text
    assert "export JAX_NUM_CPU_DEVICES=4" in text


def test_what_cannot_be_exported():
    with pytest.raises(ClusterError, match="cannot export 'pbs'; the kinds are script, slurm"):
        export("pbs", config(), ["main.py"], {})
    with pytest.raises(ClusterError, match="ps:0 would never end under Slurm"):
        export("slurm", config(ps=1), ["main.py"], {})
    alone = Shared(ClusterOptions(1, ps=1, coordinator=True), {})
    with pytest.raises(ClusterError, match="this process coordinates the cluster"):
        export("script", alone, ["main.py"], {})


@pytest.mark.slow
@pytest.mark.parametrize("launches", [{"1": 5}, {"1": {"given": 3}}, {"1": {}}, {}])
def test_a_damaged_record_is_exported_without_what_it_lost(tmp_path, launches):
    run = RunDirectory.create(tmp_path, "main")
    run.event("launch", task="worker:0", script="main.py", args=["a b"])
    options = ClusterOptions(workers=1).as_json()
    run.write({"state": "finished", "options": options, "shares": {}, "launches": launches})
    run.flush()
    assert "main.py 'a b'" in export_record("script", runs(tmp_path)[0])


def test_a_cluster_that_was_attached_is_exported_as_it_was_declared(cluster, tmp_path):
    """The declaration comes back whole, with what follows from it."""
    names = ("CUDA_VISIBLE_DEVICES=-1", "OMP_NUM_THREADS=2", "export EPOCHS=2")
    options = {"gpus": 0, "threads": 2, "env": {"EPOCHS": "2"}, "stall_timeout": 7, "grace": 0.5}
    first = cluster(2, **options, on_stall="restart", restarts=3, detach=True)
    text, declared = first.export("script", "main.py"), first.options
    first._connection.close()
    eventually(lambda: attached() is not None, "new owner")
    with Cluster.attach() as second:
        assert second.options == declared
        assert second.export("script", "main.py") == text
        assert all(name in text for name in names)
        assert [one.options for one in clusters()] == [declared]


def attached():
    """Attach for a moment, unless the end of the owner has not come through."""
    try:
        found = Cluster.attach()
    except SupervisorError:
        return None
    found._connection.close()
    return found


@pytest.mark.slow
def test_a_run_knows_what_it_was(cluster, tmp_path, shell):
    gang = cluster(2, env={"EPOCHS": "2"}, threads=1)
    (tmp_path / "main.py").write_text("print('one')")
    run = gang.run("main.py", args=["a b"]).wait()
    assert "main.py 'a b'" in run.export("script")
    assert "# Run 1, launched at 20" in run.export("script")
    assert "export EPOCHS=2\n" in run.export("slurm")
    assert shell(run.export("script"), "print('two')").returncode == 0
    assert (tmp_path / "logs" / "worker-0.log").read_text() == "one\n", "what was recorded"
    gang.run("main.py", task=0)
    mixed = gang.run("main.py", task=1, args=["other"])
    with pytest.raises(ClusterError, match="the tasks of run 2 did not all run the same file"):
        mixed.export("script")
    mixed.wait()
    own = gang.run("main.py", env={"EPOCHS": 5, "RATE": 0.1}).wait()
    text = own.export("script")
    assert "export EPOCHS=5\nexport RATE=0.1\n" in text
    assert "export EPOCHS=5\nexport RATE=0.1\n" in gang.restart().wait().export("script")
