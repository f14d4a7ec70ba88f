"""GPUs and threads shared out; the driver's tool is a small program on PATH."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from mwmagic.errors import ClusterError
from mwmagic.frameworks.environment import early
from mwmagic.model.cluster import make_tasks
from mwmagic.model.config import Config
from mwmagic.supervisor.shares import shares

ASKED = '[ "$*" = "--query-gpu=index --format=csv,noheader" ] || exit 9\n'


@pytest.fixture
def driver(tmp_path, monkeypatch):
    """Put a driver's tool on PATH that lists so many GPUs, or does something else."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def install(count=0, script=None):
        tool = tmp_path / "nvidia-smi"
        listed = "".join(f"echo {index}\n" for index in range(count))
        tool.write_text("#!/bin/sh\n" + ASKED + (listed if script is None else script))
        tool.chmod(0o755)

    return install


def seen(gpus=None, env=(), given=(), **shape):
    tasks = make_tasks(**{"workers": 2, **shape})
    found = shares(tasks, dict(env), dict(given), gpus=gpus, threads=0)
    return [found[str(task)].get("CUDA_VISIBLE_DEVICES") for task in tasks]


def test_the_gpus_are_divided_between_those_who_train(driver):
    driver(8)
    assert seen() == ["0,1,2,3", "4,5,6,7"]
    assert seen(gpus=1) == ["0", "1"]
    assert seen(gpus=2, chief=True, ps=1, evaluator=True) == ["0,1", "2,3", "4,5", "-1", "-1"]
    assert seen(workers=3) == ["0,1", "2,3", "4,5"]
    assert seen(gpus=0) == ["-1", "-1"]


def test_what_somebody_chose_stays(driver):
    driver(8)
    assert seen(env={"CUDA_VISIBLE_DEVICES": "6, 7"}) == ["6", "7"]
    assert seen(env={"CUDA_VISIBLE_DEVICES": "5,-1,7"}) == ["-1", "-1"]
    assert seen(env={"CUDA_VISIBLE_DEVICES": "GPU-a1,GPU-b2"}, gpus=1) == ["GPU-a1", "GPU-b2"]
    assert seen(env={"CUDA_VISIBLE_DEVICES": ""}) == [None, None]
    chosen = {"CUDA_VISIBLE_DEVICES": "3"}
    assert seen(env=chosen, given=chosen) == [None, None]


def test_by_default_nobody_has_a_gpu_where_there_are_too_few(driver):
    assert seen() == [None, None], "no driver: nothing to say"
    driver(1)
    assert seen() == ["-1", "-1"]
    assert seen(workers=1) == ["0"]
    driver(script="echo 'No devices were found'\n")
    assert seen() == [None, None]


@pytest.mark.parametrize(
    ("count", "script", "message"),
    [
        (1, None, r"2 tasks with a GPU count of 1 need 2 GPUs, and there are 1 \(0\); ask for f"),
        (0, "exit 0\n", "none: nvidia-smi lists none"),
        (0, "echo NVIDIA-SMI has failed; exit 9\n", "none: NVIDIA-SMI has failed;"),
        (0, "exit 3\n", "none: nvidia-smi exits with 3;"),
    ],
)
def test_more_gpus_than_there_are_is_one_clear_error(driver, count, script, message):
    driver(count, script)
    with pytest.raises(ClusterError, match=message):
        seen(gpus=1)


def test_gpus_without_a_driver(driver):
    with pytest.raises(ClusterError, match="none: nvidia-smi is not on PATH; ask"):
        seen(gpus=1)


@pytest.mark.parametrize("count", [-1, True, 1.5, "2"])
def test_a_count_is_a_whole_number(count):
    with pytest.raises(ClusterError, match="gpus must be a whole number from 0"):
        shares(make_tasks(1), {}, {}, gpus=count, threads=None)
    with pytest.raises(ClusterError, match="threads must be a whole number from 0"):
        shares(make_tasks(1), {}, {}, gpus=None, threads=count)


def threads(count, env=(), workers=2):
    found = shares(make_tasks(workers), dict(env), {}, gpus=0, threads=count)
    names = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS", "NPROC")
    [values] = {tuple(share.get(name) for name in names) for share in found.values()}
    return values


def test_the_processors_are_divided(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))
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
    share = shares(make_tasks(1), {}, {}, gpus=0, threads=3)["worker:0"]
    env = {**os.environ, **share, "JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "1"}
    command = [sys.executable, "-c", POOL]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    assert done.stdout == "3\n"


def test_a_warm_process_serves_tasks_with_different_gpus(driver):
    driver(2)
    found = shares(make_tasks(2), {}, {}, gpus=1, threads=2)
    assert found["worker:0"] != found["worker:1"]
    assert early(found["worker:0"]) == early(found["worker:1"]) == {"OMP_NUM_THREADS": "2"}


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
    assert Config.from_json(tasks.config.as_json()) == tasks.config
