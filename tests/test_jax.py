"""Keras' own distribution, on JAX: 2 processes with 4 virtual devices each."""

from __future__ import annotations

import re

import pytest

from mwmagic.errors import WorkerFailed

pytestmark = [pytest.mark.slow, pytest.mark.tensorflow]

MAIN = """
import sys
import keras
import numpy as np

keras.distribution.initialize()
import jax
from mwmagic.worker import cluster_size, is_chief, layout_report, this_task

assert (jax.process_index(), jax.process_count()) == (this_task().index, cluster_size())
assert is_chief() == (jax.process_index() == 0)
devices = keras.distribution.list_devices()
assert (len(devices), len(jax.local_devices())) == (8, 4)
layers = keras.layers

def losses(distribution):
    # Each process gives its share of every batch of 16.
    keras.distribution.set_distribution(distribution)
    keras.utils.set_random_seed(1)
    dense = [layers.Dense(16, name="d1"), layers.Dense(4, name="d2")]
    model = keras.Sequential([layers.Input((12,)), *dense])
    model.compile("sgd", loss="mse")
    x = np.random.default_rng(0).normal(size=(4, 2, 8, 12)).astype("float32")
    mine = x[:, jax.process_index()].reshape(32, 12)
    fitted = model.fit(mine, mine[:, :4], batch_size=8, epochs=2, shuffle=False, verbose=0)
    return model, [round(loss, 4) for loss in fitted.history["loss"]]

data_parallel = keras.distribution.DataParallel(auto_shard_dataset=False)
print("losses", *losses(data_parallel)[1], flush=True)

mesh = keras.distribution.DeviceMesh((2, 4), ["batch", "model"], devices)
layout_map = keras.distribution.LayoutMap(mesh)
layout_map["d1/kernel"] = (None, "model")  # as in the guide; matches nothing
layout_map[".*d2/kernel"] = ("model", None)
layout_map[".*d2/output"] = ("batch", None)
sharded = keras.distribution.ModelParallel(
    layout_map=layout_map, batch_dim_name="batch", auto_shard_dataset=False
)
model, history = losses(sharded)
print("losses", *history, flush=True)
report = layout_report(model)
print(report, flush=True)
assert [path.rpartition("d")[2] for path in report.sharded] == ["2/kernel"]
assert report.unmatched == ("d1/kernel",)

if "raise" in sys.argv and not is_chief():
    raise ValueError("the learning rate must be positive")
if "raise" in sys.argv:
    losses(sharded)
"""


def test_data_and_model_parallel_and_an_exception(cluster, tmp_path):
    (tmp_path / "main.py").write_text(MAIN)
    gang = cluster(2, framework="jax", devices=4, warm=True)
    done = gang.run("main.py").wait()
    first, second = (done.logs(index).decode() for index in range(2))
    assert "proxy" not in first + second, "JAX does not warn of what mwmagic sets"
    losses = re.findall("^losses .*", first, re.MULTILINE)
    assert losses == re.findall("^losses .*", second, re.MULTILINE)
    assert len(losses) == 2
    assert losses[0] == losses[1], "how the model is laid out changes no number"
    assert "d2/kernel  (16, 4)   ('model', None)  (4, 4)" in first
    assert "'d1/kernel' matches no variable's whole path; did you mean" in first

    failed = gang.run("main.py", args=["raise"])
    with pytest.raises(WorkerFailed, match="worker:1 exited with code 1: ValueError: the learn"):
        failed.wait()
    assert b"shutdown initiated" not in failed.logs(1), "it did not wait for the other"
