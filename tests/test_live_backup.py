"""Backups in live cells: after an error in mid-epoch the next `fit` continues from a whole step."""

from __future__ import annotations

import pytest
from livemodel import NETWORK

from mwmagic.errors import WorkerFailed

pytestmark = [pytest.mark.slow, pytest.mark.tensorflow]

BATCHES, EVERY = 9, 3
"""How many batches an epoch has, and after how many a backup is made."""

BUILD = """
import json
import time
from pathlib import Path
import h5py
import numpy as np
import tensorflow as tf
from mwmagic.recovery.task import updates
strategy = tf.distribute.MultiWorkerMirroredStrategy()
rank = strategy.cluster_resolver.task_id
last = rank == 1
rng = np.random.default_rng(0)
x = rng.normal(size=(16 * BATCHES, 16)).astype("float32")
y = (x.sum(1) > 0).astype("float32")[:, None]
data = tf.data.Dataset.from_tensor_slices((x, y)).batch(16)

def build():
    '''Make the model, or reset it to what it was at first, so that it need not be traced again.'''
    global model
    tf.keras.utils.set_random_seed(7)
    if model is None:
        with strategy.scope():
            model = network()
            model.optimizer.build(model.trainable_variables)
        first[:] = [np.asarray(v) for v in variables()]
    for variable, value in zip(variables(), first, strict=True):
        variable.assign(value)

def variables():
    return [*model.variables, *model.optimizer.variables]

class Accident(tf.keras.callbacks.Callback):
    '''Lets a task raise, or wait for its end, after some batches, and notes all of them.'''
    def __init__(self, after=None, waits=False, ends=False):
        super().__init__()
        self.after, self.waits, self.ends, self.batches = after, waits, ends, []
    def on_train_batch_begin(self, batch, logs=None):
        if self.after is not None and len(self.batches) == self.after:
            if self.waits:
                time.sleep(1000)
            raise ValueError("bad batch on this task")
        self.batches.append(batch)
    def on_train_batch_end(self, batch, logs=None):
        if self.ends and len(self.batches) == self.after:
            raise ValueError("bad batch on this task")

class Clumsy(tf.keras.callbacks.BackupAndRestore):
    '''Raises where it would make the second backup.'''
    saved = 0
    def _save_model(self):
        self.saved += 1
        if self.saved == 2 and last:
            raise OSError("no space left on device")
        super()._save_model()

def backup(cls=tf.keras.callbacks.BackupAndRestore, **options):
    return cls(directory, save_freq=EVERY, **options)

def fit(*callbacks, epochs=2):
    history = model.fit(data, epochs=epochs, verbose=0, callbacks=list(callbacks)).history
    return {name: np.asarray(values) for name, values in history.items()}

def state():
    return [np.asarray(v) for v in (*model.weights, *model.optimizer.variables)]

def same(a, b):
    return all(np.allclose(one, other, rtol=1e-5, atol=1e-7) for one, other in zip(a, b))

def versions():
    notes = sorted(int(p.stem.partition("-")[2]) for p in Path(directory).glob("point-*.npz"))
    with h5py.File(Path(directory) / "latest.weights.h5") as file:
        return int(file.attrs["mwmagic_version"]), notes

def as_twin(history):
    '''Return whether the model, and its last epoch's logs, are an undisturbed twin's.'''
    found = state()
    if not twin:
        build()
        twin.update(logs=fit(), state=state())
    logs = twin["logs"].items()
    return same(found, twin["state"]) and all(
        np.isclose(history[name][-1], values[-1], rtol=1e-5) for name, values in logs)

model, first, twin = None, [], {}
"""

ERRORS = {
    "between two backups": "fit(kept, Accident(7) if last else Accident())",
    "of the task that writes": "fit(kept, Accident(7) if rank == 0 else Accident())",
    "in the second epoch": "fit(kept, Accident(BATCHES + 4) if last else Accident())",
    "before the backup counts": "fit(Accident(7, ends=last) if last else Accident(), kept)",
    "in a backup": "kept = backup(Clumsy)\nfit(kept)",
    "which other code replaces": (
        "try:\n    fit(kept, Accident(4) if last else Accident())\n"
        "except Exception:\n    raise SystemExit"
    ),
}
SEEN = {
    "between two backups": 6,
    "of the task that writes": 6,
    "in the second epoch": BATCHES + 3,
    "before the backup counts": 6,
    "in a backup": 3,
    "which other code replaces": 3,
}
"""How many batches the last backup before the error holds."""


@pytest.fixture(scope="module")
def live(warm_pair):
    with warm_pair.live() as live:
        prepare(live)
        yield live


def prepare(live):
    live.run(f"BATCHES, EVERY = {BATCHES}, {EVERY}\n{NETWORK}{BUILD}")


def values(live, source):
    return [one.value["text/plain"] for one in live.run(source).values()]


@pytest.mark.parametrize("error", ERRORS)
def test_the_next_fit_goes_on_with_the_last_whole_step_that_was_saved(live, tmp_path, error):
    live.run(f"directory = {str(tmp_path / 'backup')!r}\nbuild()\nkept = backup()")
    live.run("before = updates.committed()")
    with pytest.raises(WorkerFailed):
        live.run(ERRORS[error])
    weights, notes = eval(values(live, "versions()")[0])
    assert weights == int(values(live, "before")[0]) + SEEN[error], "counted in this process"
    assert weights in notes
    live.run("seen = Accident()\nhistory = fit(kept, seen)")
    whole = [*range(BATCHES)] * 2
    assert {*values(live, "seen.batches")} == {str(whole[SEEN[error] :])}
    assert values(live, "as_twin(history)") == ["True", "True"]
    assert not (tmp_path / "backup").exists(), "Keras removes it when training ends well"


def test_backups_differ_by_name_also_where_no_update_comes_in_between(live, tmp_path):
    live.run(f"directory = {str(tmp_path / 'backup')!r}\nbuild()\nmodel.trainable = False")
    live.run("model.compile('adam', 'binary_crossentropy')\nkept = backup()")
    live.run("before = updates.committed()")
    with pytest.raises(WorkerFailed):
        live.run(ERRORS["between two backups"])
    weights = int(values(live, "before")[0]) + 1
    assert eval(values(live, "versions()")[0]) == (weights, [weights])
    live.run("seen = Accident()\nfit(kept, seen)\nmodel = None")
    assert {*values(live, "len(seen.batches)")} == {str(2 * BATCHES - 6)}


def test_an_interrupted_fit_goes_on_in_fresh_processes_which_count_on(live, tmp_path):
    directory = f"directory = {str(tmp_path / 'backup')!r}\nbuild()"
    live.run(directory)
    cell = live.begin("fit(backup(), Accident(4, waits=True))")
    while not list(tmp_path.glob("backup/training_metadata.json")):
        cell.news(0.05)
    live.interrupt(cell)
    while not cell.over:
        assert cell.news(120.0) is not None, "the cell hangs"
    weights, _ = eval(values(live, "versions()")[0])
    live.reset()
    prepare(live)
    live.run(directory)
    with pytest.raises(WorkerFailed):
        live.run("fit(backup(), Accident(2) if last else Accident())")
    assert eval(values(live, "versions()")[0])[0] == weights
    with pytest.raises(WorkerFailed):
        live.run("fit(backup(), Accident(4) if last else Accident())")
    assert eval(values(live, "versions()")[0]) == (weights + 3, [weights + 3])
    live.run("seen = Accident()\nhistory = fit(backup(), seen)")
    assert {*values(live, "len(seen.batches)")} == {str(2 * BATCHES - 6)}
    assert values(live, "as_twin(history)") == ["True", "True"]
