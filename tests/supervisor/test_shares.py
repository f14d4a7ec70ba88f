"""GPUs and threads shared out; where it counts, the driver's tool is a program on PATH."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import pytest

from mwmagic import Cluster
from mwmagic.errors import ClusterError
from mwmagic.frameworks.environment import differing
from mwmagic.model.cluster import make_tasks
from mwmagic.model.machine import Gpu, Machine
from mwmagic.supervisor.preparation import shares

ASKED = '[ "${1%%=*}" = --query-gpu ] || exit 9\n'


@pytest.fixture
def driver(tmp_path, monkeypatch):
    """Put a driver's tool on PATH that lists so many GPUs."""
    monkeypatch.setenv("PATH", str(tmp_path) + os.pathsep + os.environ["PATH"])
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def install(count, script=""):
        tool = tmp_path / "nvidia-smi"
        listed = "".join(f"echo '{index}, Tesla T4, 15360 MiB'\n" for index in range(count))
        tool.write_text("#!/bin/sh\n" + ASKED + script + listed)
        tool.chmod(0o755)

    return install


def machine(gpus=0, *, processors=16, why="nvidia-smi is not on PATH", visible=None):
    listed = tuple(Gpu(index, "Tesla T4") for index in range(gpus))
    return Machine(processors, gpus=listed, why=None if gpus else why, visible=visible)


def seen(count, gpus=None, env=(), given=(), why="no driver", **shape):
    tasks = make_tasks(**{"workers": 2, **shape})
    have = machine(count, why=why)
    found = shares(tasks, have, dict(env), dict(given), gpus=gpus, threads=0)
    return [found[str(task)].get("CUDA_VISIBLE_DEVICES") for task in tasks]


def test_gpus_are_divided_between_the_tasks_that_train():
    assert seen(8) == ["0,1,2,3", "4,5,6,7"]
    assert seen(8, gpus=1) == ["0", "1"]
    assert seen(8, gpus=2, chief=True, ps=1, evaluator=True) == ["0,1", "2,3", "4,5", "-1", "-1"]
    assert seen(8, workers=3) == ["0,1", "2,3", "4,5"]
    assert seen(8, gpus=0) == ["-1", "-1"]


def test_what_the_user_chose_stays():
    assert seen(8, env={"CUDA_VISIBLE_DEVICES": "6, 7"}) == ["6", "7"]
    assert seen(8, env={"CUDA_VISIBLE_DEVICES": "5,-1,7"}) == ["-1", "-1"]
    assert seen(8, env={"CUDA_VISIBLE_DEVICES": "GPU-a1,GPU-b2"}, gpus=1) == ["GPU-a1", "GPU-b2"]
    assert seen(8, env={"CUDA_VISIBLE_DEVICES": ""}) == [None, None]
    chosen = {"CUDA_VISIBLE_DEVICES": "3"}
    assert seen(8, env=chosen, given=chosen) == [None, None]


def test_by_default_no_task_has_a_gpu_where_there_are_too_few():
    assert seen(0) == [None, None], "no driver: nothing to say"
    assert seen(1) == ["-1", "-1"]
    assert seen(1, workers=1) == ["0"]


@pytest.mark.parametrize(
    ("count", "message"),
    [
        (
            1,
            (
                r"2 tasks with a GPU count of 1 would take 2 GPUs, and "
                r"there are 1 \(0\); ask for fewer"
            ),
        ),
        (0, "none: nvidia-smi lists none; ask"),
    ],
)
def test_more_gpus_than_there_are_is_one_clear_error(count, message):
    with pytest.raises(ClusterError, match=message):
        seen(count, gpus=1, why="nvidia-smi lists none")


def threads(count, env=(), workers=2):
    found = shares(make_tasks(workers), machine(), dict(env), {}, gpus=0, threads=count)
    names = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS", "NPROC")
    [values] = {tuple(share.get(name) for name in names) for share in found.values()}
    return values


def test_the_processors_are_divided():
    assert threads(None) == ("8", "8", "8", "8")
    assert threads(None, workers=5) == ("3", "3", "3", "3")
    assert threads(None, workers=40) == ("1", "2", "1", "1"), (
        "with one inter-op thread a parameter server's cluster was seen to hang"
    )
    assert threads(3) == ("3", "3", "3", "3")
    assert threads(0) == (None, None, None, None)
    assert threads(None, {"OMP_NUM_THREADS": "5"}) == ("8", "8", None, "8")


POOL = """
import os
import jax.numpy
jax.numpy.ones((600, 600)) @ jax.numpy.ones((600, 600))
names = [open(f"/proc/self/task/{task}/comm").read() for task in os.listdir("/proc/self/task")]
print(sum("XLAEigen" in name for name in names))
"""


@pytest.mark.slow
def test_jax_takes_its_share():
    share = shares(make_tasks(1), machine(), {}, {}, gpus=0, threads=3)["worker:0"]
    env = {**os.environ, **share, "JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "1"}
    command = [sys.executable, "-c", POOL]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    assert done.stdout == "3\n"


def test_a_warm_process_serves_tasks_with_different_gpus():
    found = shares(make_tasks(2), machine(2), {}, {}, gpus=1, threads=2)
    assert found["worker:0"] != found["worker:1"]
    assert differing(found["worker:0"], found["worker:1"]) == []


SHOW = """
import json, os
names = ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS")
print(json.dumps([os.environ.get(name) for name in names]))
"""


@pytest.mark.slow
def test_tasks_get_their_share_unless_it_is_set_later(driver, cluster, tmp_path):
    driver(4)
    tasks = cluster(2, gpus=2, threads=3, env={"TF_NUM_INTRAOP_THREADS": "7"})
    (tmp_path / "main.py").write_text(SHOW)
    run = tasks.run("main.py").wait()
    assert [json.loads(run.logs(index)) for index in (0, 1)] == [
        ["0,1", "3", "7"],
        ["2,3", "3", "7"],
    ]
    run = tasks.run("main.py", env={"CUDA_VISIBLE_DEVICES": "1", "OMP_NUM_THREADS": "2"}).wait()
    assert json.loads(run.logs(1)) == ["1", "2", "7"]


@pytest.mark.slow
def test_too_few_gpus_fail_the_declaration(driver, cluster):
    driver(1)
    with pytest.raises(ClusterError, match=r"^2 tasks with a GPU count of 1 would take 2 GPUs"):
        cluster(2, gpus=1)
    driver(0, "echo NVIDIA-SMI has failed; exit 9\n")
    with pytest.raises(ClusterError, match=r"none: NVIDIA-SMI has failed; ask for fewer"):
        cluster(2, gpus=1)


@pytest.mark.slow
def test_a_driver_that_hangs_does_not_hold_up_the_declaration(driver, cluster):
    driver(0, "exec sleep 600\n")
    begun = time.monotonic()
    tasks = cluster(2)
    assert time.monotonic() - begun < 20, "the driver has 20 s to answer"
    [machine] = tasks.machines
    assert machine.machine is None


@pytest.mark.slow
def test_an_attached_cluster_knows_its_shares(driver, cluster):
    driver(2)
    tasks = cluster(2, gpus=1, detach=True)
    [machine] = tasks.machines
    assert [gpu.name for gpu in machine.machine.gpus] == ["Tesla T4"] * 2
    tasks._connection.close()
    again = Cluster.attach(tasks.options.name)
    try:
        assert "CUDA_VISIBLE_DEVICES=1" in again.export("script", "main.py")
    finally:
        again.close()
