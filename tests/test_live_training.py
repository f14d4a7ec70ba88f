"""Live cells that train: the strategy, the model and what waits in a collective."""

from __future__ import annotations

from pathlib import Path

import pytest

import mwmagic
from mwmagic.errors import RunActive, WorkerFailed
from mwmagic.experiments.runs import facts_of
from mwmagic.model.live import CellNews

pytestmark = [pytest.mark.slow, pytest.mark.tensorflow]

BUILD = """
import numpy as np
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
rank = strategy.cluster_resolver.task_id
x = np.linspace(0, 1, 64, dtype="float32").reshape(-1, 1)
data = tf.data.Dataset.from_tensor_slices((x, 3 * x + 1)).batch(16)
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, kernel_initializer="zeros")])
    model.compile(optimizer=tf.keras.optimizers.SGD(0.1), loss="mse")
"""

BOOM = """
class Boom(tf.keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if rank == 1 and batch == 1:
            raise ValueError("bad batch on this task")
model.fit(data, epochs=3, verbose=0, callbacks=[Boom()])
"""


BOUND = {
    "names": "from mwmagic.recovery.task import private\n"
    "private.PRIVATE += (('builtins', 'gone'),)",
    "gpu": """
import threading
from tensorflow.python.eager import context
listed = context.Context.list_logical_devices
def with_gpu(self, device_type=None):
    fit = threading.current_thread() is threading.main_thread()  # which would use it
    return ["a device"] if device_type == "GPU" and not fit else listed(self, device_type)
context.Context.list_logical_devices = with_gpu
""",
}
"""What makes collectives such that nothing ends them, as `mwmagic.cells.events.BoundBy` says."""


def test_what_cannot_be_freed_is_reported_once_and_the_session_is_reset(warm_pair):
    with warm_pair.live() as live:
        live.run(BUILD)
        fit = "round(model.fit(data, epochs=2, verbose=0).history['loss'][-1], 6)"
        losses = [live.run(fit) for _ in range(2)]
        texts = [[one.value["text/plain"] for one in found.values()] for found in losses]
        assert texts[0][0] == texts[0][1]
        assert float(texts[1][0]) < float(texts[0][0]), "it continues with the same variables"
        for why, source in BOUND.items():
            live.run(source)
            cell = live.begin(BOOM, name="In [7]")
            waits = [said for what, said in live.follow(cell, None) if what is CellNews.WAITS]
            assert [(one["waiting"], one["raised"], one["why"]) for one in waits] == [
                (["worker:0"], ["worker:1"], why)
            ]
            assert cell.freed is cell.recovered is None
            with pytest.raises(WorkerFailed, match=r"line 5\); worker:0 still waits for it"):
                live.check(cell, "In [7]")
            trace = cell.answers["worker:1"].raised.trace
            assert f"{Path(mwmagic.__file__).parent}/" not in trace, "nothing of the repairs"
            with pytest.raises(RunActive, match="worker:0 is still in an earlier cell"):
                live.run("1")
            live.reset()
            live.run(BUILD)


def test_a_task_that_is_freed_leaves_no_noise_and_a_mistyped_name_frees_none(warm_pair):
    with warm_pair.live() as live:
        live.run(BUILD)
        cell, found = live.begin(BOOM), []
        for _ in live.follow(cell):
            found += cell.lines()
        assert cell.freed is not None
        text = "\n".join(text for _, text in found + cell.lines())
        for noise in ("Abort", "Restart your program", "Enabling collective ops", "[[{{node"):
            assert noise not in text
        ended = [live.process.logs(task).count(b"StartAbort") for task in (0, 1)]
        assert all(ended), "they are there to be hidden"
        with pytest.raises(WorkerFailed, match="NameError: name 'histroy' is not defined"):
            live.pull("histroy")
        with pytest.raises(WorkerFailed, match="NameError"):
            live.pull_all("histroy")
        assert [live.process.logs(task).count(b"StartAbort") for task in (0, 1)] == ended
        live.run("model.fit(data, verbose=0)")


def test_the_variables_at_a_fit_are_the_parameters_of_the_session(cluster):
    one = cluster(1)
    with one.live() as live:
        live.run("units = 4; sizes = [1, 2]; secret = object(); _hidden = 3")
        live.run(BUILD)
        live.run("model.fit(data, epochs=1, verbose=0)")
        live.run("units = 8; model.fit(data, epochs=1, verbose=0)")
        live.run("units = 16")
    known = facts_of(one.latest.record).parameters
    assert {name: known.get(name) for name in ("units", "sizes", "rank")} == {
        "units": 8, "sizes": [1, 2], "rank": 0
    }  # fmt: skip
    assert not {"secret", "_hidden", "model"} & set(known)
