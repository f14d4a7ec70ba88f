"""What needs a real GPU; one is enough. Without a driver that lists one, all of this is skipped.

What a stand-in for the driver's tool can show is tested everywhere: tests/agent/test_machine.py
(what is listed, and a tool that is absent, fails or hangs) and tests/supervisor/test_shares.py.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from processes import eventually

from mwmagic import Cluster
from mwmagic.errors import ClusterError

TOOL = shutil.which("nvidia-smi")
QUERY = ["--query-gpu=index,name", "--format=csv,noheader"]
ANSWER_SECONDS = 60.0


def gpus():
    """Return the index and the name of each GPU that the driver lists, and why there are none."""
    if TOOL is None:
        return [], "nvidia-smi is not on PATH"
    try:
        done = subprocess.run(
            [TOOL, *QUERY], capture_output=True, text=True, check=False, timeout=ANSWER_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return [], f"nvidia-smi does not answer: {error}"
    if done.returncode:
        return [], f"nvidia-smi exits with {done.returncode}: {done.stdout.strip()}"
    pairs = [line.split(", ", 1) for line in done.stdout.splitlines() if line[:1].isdigit()]
    return [(int(index), name) for index, name in pairs], "nvidia-smi lists none"


GPUS, WHY = gpus()
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.slow,
    pytest.mark.tensorflow,
    pytest.mark.skipif(not GPUS, reason=f"this machine has no GPU: {WHY}"),
]

SEEN = """
import json, os
import tensorflow as tf
found = tf.config.list_physical_devices("GPU")
print(json.dumps([len(found), os.environ.get("CUDA_VISIBLE_DEVICES")]))
"""

MODEL = """
import json, os
import numpy as np
import tensorflow as tf
strategy = STRATEGY
x = np.linspace(0, 1, 64, dtype="float32").reshape(-1, 1)
data = tf.data.Dataset.from_tensor_slices((x, 3 * x + 1)).batch(16).repeat()
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, kernel_initializer="zeros")])
    model.compile(optimizer=tf.keras.optimizers.SGD(0.1), loss="mse")
history = model.fit(data, epochs=2, steps_per_epoch=4, verbose=0).history
product = tf.linalg.matmul(tf.ones((64, 64)), tf.ones((64, 64)))
told = {"losses": history["loss"], "device": product.device, "pid": os.getpid()}
print(json.dumps(told), flush=True)
"""
MIRRORED = MODEL.replace("STRATEGY", "tf.distribute.MirroredStrategy()")
RING = MODEL.replace(
    "STRATEGY",
    "tf.distribute.MultiWorkerMirroredStrategy(communication_options="
    "tf.distribute.experimental.CommunicationOptions("
    "implementation=tf.distribute.experimental.CommunicationImplementation.RING))",
)
"""NCCL refuses two tasks on one GPU."""

SHARED = {"CUDA_VISIBLE_DEVICES": "0", "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
"""Both tasks on one GPU, of whose memory neither takes all."""


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A cluster of two warm tasks on one GPU."""
    folder = tmp_path_factory.mktemp("gpu")
    with Cluster(2, directory=folder, env=SHARED, name="shared", grace=1.0) as cluster:
        eventually(lambda: cluster.machines[0].warm.state == "ready", "the warm process")
        yield cluster


def told(run, task=0):
    """Return what a task printed last."""
    return json.loads(run.logs(task).decode().splitlines()[-1])


def launch(cluster, code, **options):
    return cluster.run("main.py", source=code, cwd=cluster.options.root, **options)


def opened(pid):
    """Return the driver's devices that a process has open."""
    links = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # it has been closed since
            links.append(str(link.readlink()))
    return [link for link in links if link.startswith("/dev/nvidia")]


def test_the_warm_process_never_touches_the_driver_before_it_forks(shared):
    warm = shared.machines[0].warm.pid
    assert not opened(warm)
    run = launch(shared, RING).wait(300)
    assert run.status().tasks["worker:0"].warm, "it was forked, not started cold"
    assert "GPU:0" in told(run)["device"], "what a forked task does with CUDA works"
    assert shared.machines[0].warm.pid == warm
    assert not opened(warm), "nor did the tasks' use of it reach the parent"


def test_two_tasks_train_together_on_one_gpu_with_ring(shared):
    run = launch(shared, RING).wait(300)
    first, second = told(run, 0), told(run, 1)
    assert first["losses"] == second["losses"]
    assert first["losses"][-1] < first["losses"][0]
    assert all("GPU:0" in one["device"] for one in (first, second))
    assert first["pid"] != second["pid"]


def test_the_mirrored_strategy_trains_on_a_gpu(cluster):
    run = launch(cluster(1, gpus=1), MIRRORED).wait(300)
    assert "GPU:0" in told(run)["device"]
    assert told(run)["losses"][-1] < told(run)["losses"][0]


def test_gpus_are_those_that_the_driver_lists_and_each_task_sees_its_own(cluster, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    tasks = cluster(len(GPUS), gpus=1)
    listed = tasks.machines[0].machine.gpus
    assert [(gpu.index, gpu.name) for gpu in listed] == GPUS
    assert all(gpu.memory is None or gpu.memory > 1 << 30 for gpu in listed)
    run = launch(tasks, SEEN).wait(300)
    for (index, _), task in zip(GPUS, range(len(GPUS)), strict=True):
        assert told(run, task) == [1, str(index)]
    with pytest.raises(ClusterError, match=f"there are {len(GPUS)}"):
        cluster(len(GPUS) + 1, gpus=1, name="more")


def test_no_gpus_hides_them_from_tensorflow(cluster):
    run = launch(cluster(1, gpus=0), SEEN).wait(300)
    assert told(run) == [0, "-1"]


def unlisted(tmp_path, monkeypatch, code):
    """Put a tool that does not list the GPUs before the driver's own."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    tool = tmp_path / "bin" / "nvidia-smi"
    tool.parent.mkdir()
    tool.write_text(f"#!/bin/sh\n{code}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}{os.pathsep}{os.environ['PATH']}")


@pytest.mark.parametrize("code", ["exit 127", "exec sleep 600"], ids=["absent", "hanging"])
def test_without_the_drivers_tool_tensorflow_still_finds_the_gpus(
    tmp_path, monkeypatch, cluster, code
):
    unlisted(tmp_path, monkeypatch, code)
    run = launch(cluster(1), SEEN).wait(300)
    assert told(run) == [len(GPUS), None], "what is unknown is not divided, and nothing is hidden"
