"""Live cells of each framework, whose tasks meet in one cell and compute together in the next."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

from mwmagic import Cluster
from mwmagic.errors import RunActive, WorkerFailed
from mwmagic.model.live import CellNews

pytestmark = [pytest.mark.slow, pytest.mark.tensorflow]

TORCH = Path(__file__).parents[1] / ".torch"
"""Where `make` puts PyTorch, if it can."""


def texts(answers):
    return {task: answer.value.get("text/plain") for task, answer in answers.items()}


def check_that_waiting_is_told_and_reset(live, meet, total):
    """Let worker:1 raise while worker:0 waits for it in a collective, which nothing can end."""
    cell = live.begin(f"if rank: raise ValueError('bad batch')\n{total}", name="In [7]")
    told = []
    while not cell.over:
        news = cell.news(60.0)
        assert news is not None, "the cell hangs"
        told += [news[1]] if news[0] is CellNews.WAITS else []
    assert [(one["waiting"], one["raised"], one["why"]) for one in told] == [
        (["worker:0"], ["worker:1"], "framework")
    ]
    with pytest.raises(WorkerFailed, match="worker:0 still waits for it"):
        live.check(cell, "In [7]")
    with pytest.raises(RunActive, match="worker:0 is still in an earlier cell"):
        live.run("1")
    assert set(texts(live.run("rank", tasks=[1])).values()) == {"1"}, (
        "the other keeps its variables"
    )
    live.reset()
    live.run(meet)
    assert set(texts(live.run(total)).values()) == {"3.0"}


JAX = """
import os
os.environ.setdefault("KERAS_BACKEND", "jax")
import keras
keras.distribution.initialize()
import jax
from jax.experimental.multihost_utils import process_allgather
rank = jax.process_index()
"""


def test_jax_computes_over_processes_that_met_in_an_earlier_cell(tmp_path):
    with Cluster(2, directory=tmp_path, framework="jax", grace=1.0) as cluster:
        live = cluster.live()
        live.run(JAX)
        gather = "process_allgather(jax.numpy.array(rank + 1.0)).sum().item()"
        assert set(texts(live.run(gather)).values()) == {"3.0"}
        with pytest.raises(WorkerFailed, match="worker:1 raised ValueError: bad batch"):
            live.run("if rank: raise ValueError('bad batch')")
        assert set(texts(live.run(gather)).values()) == {"3.0"}
        assert live.pull_all("jax.numpy.arange(3) * rank")["worker:1"].tolist() == [0, 1, 2]
        check_that_waiting_is_told_and_reset(live, JAX, gather)


TORCH_MEETS = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
x = torch.full((3,), rank + 1.0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))

def total():
    model(torch.ones(2, 4)).sum().backward()
    y = torch.tensor(rank + 1.0)
    dist.all_reduce(y)
    return y.item()
"""


@pytest.mark.skipif(
    importlib.util.find_spec("torch") is None and not (TORCH / "torch").is_dir(),
    reason="PyTorch cannot be installed here",
)
def test_torch_reduces_over_processes_that_met_in_an_earlier_cell(tmp_path, monkeypatch):
    if importlib.util.find_spec("torch") is None:
        monkeypatch.setenv("PYTHONPATH", str(TORCH), prepend=os.pathsep)
    with Cluster(2, directory=tmp_path, framework="torch", warm=False, grace=1.0) as cluster:
        live = cluster.live()
        live.run(TORCH_MEETS)
        live.run("dist.all_reduce(x)")
        for array in live.pull_all("x").values():
            assert array.tolist() == [3.0, 3.0, 3.0]
        live.push(y=live.pull("x") * 2)
        with pytest.raises(WorkerFailed, match="worker:0 raised KeyError"):
            live.run("if not rank: {}['lost']")
        live.run("z = torch.from_numpy(y.copy()); dist.all_reduce(z)")
        assert set(texts(live.run("z[0].item()")).values()) == {"12.0"}
        check_that_waiting_is_told_and_reset(live, TORCH_MEETS, "total()")


SERVE = """
import os
import tensorflow as tf
resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
server = tf.distribute.Server(
    resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id,
    protocol="grpc", start=True)
"""

COORDINATE = """
import tensorflow as tf
resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
strategy = tf.distribute.ParameterServerStrategy(resolver)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    weight = tf.Variable(4.0)

@tf.function
def step():
    weight.assign_sub(0.1 * 2.0 * weight)
"""


def test_cells_run_on_any_task_of_a_cluster_with_parameter_servers(tmp_path):
    with Cluster(1, chief=True, ps=1, directory=tmp_path, grace=1.0) as cluster:
        live = cluster.live()
        live.run(SERVE, tasks=["worker:0", "ps:0"])
        live.run(COORDINATE, tasks=["chief:0"])
        for _ in range(2):
            live.run(
                "for _ in range(5): coordinator.schedule(step)\ncoordinator.join()", ["chief:0"]
            )
        value = live.pull("weight.numpy()", task="chief:0")
        assert value == pytest.approx(4.0 * 0.8**10, rel=1e-4)
        found = texts(live.run("os.environ['MWMAGIC_TASK']", tasks=["ps:0", "worker:0"]))
        assert found == {"worker:0": "'worker:0'", "ps:0": "'ps:0'"}
        with pytest.raises(WorkerFailed, match="ps:0 raised ZeroDivisionError"):
            live.run("1 / 0", tasks=["ps:0"])


KEPT = """
import os
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
rank = strategy.cluster_resolver.task_id

@tf.function
def total():
    return strategy.reduce("sum", strategy.run(lambda: tf.constant(1.0)), axis=None)

before = total().numpy()
if rank == 1:
    raise ValueError("bad batch")
after = total()
"""


def test_a_task_that_waits_for_a_program_which_raised_is_reported_and_the_other_looked_into(
    warm_pair, tmp_path
):
    run = warm_pair.run("main.py", source=KEPT, cwd=tmp_path, keep=True)
    with pytest.raises(WorkerFailed, match="ValueError: bad batch") as caught:
        run.wait(120)
    assert "worker:0 is still in the program" in str(caught.value)
    assert warm_pair.live().pull("before", task=1) == 2.0
    run.stop()
    assert run.cause.exception == "ValueError: bad batch"
