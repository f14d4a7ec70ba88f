"""One task's error in a live cell: the others are freed, and training goes on as if undisturbed."""

from __future__ import annotations

import contextlib
import os
import random
import signal

import pytest
from latecomer import LATE
from livemodel import NETWORK
from processes import pid_of

from mwmagic import Cluster
from mwmagic.errors import RunFailed, WorkerFailed
from mwmagic.recovery.task.collectives import EPOCH_KEYS

pytestmark = [pytest.mark.slow, pytest.mark.tensorflow]

SECONDS = 120.0
"""How long a cell may take, on a busy machine, before it counts as hanging."""

BUILD = """
import time
import numpy as np
import tensorflow as tf
from mwmagic.recovery.task import strategies
strategy = tf.distribute.MultiWorkerMirroredStrategy()
rank, tasks = strategy.cluster_resolver.task_id, strategy.num_replicas_in_sync
last = rank == tasks - 1
tf.keras.utils.set_random_seed(7)
rng = np.random.default_rng(0)
x = rng.normal(size=(8 * tasks, 16)).astype("float32")
y = (x.sum(1) > 0).astype("float32")[:, None]
data = tf.data.Dataset.from_tensors((x, y)).unbatch().batch(8 * tasks).cache().repeat()
with strategy.scope():
    model = network()

def fit(steps=2, **more):
    return model.fit(data, steps_per_epoch=steps, verbose=0, **more).history

class Raise(tf.keras.callbacks.Callback):
    def __init__(self, batch, who):
        super().__init__()
        self.batch, self.who = batch, who
    def on_train_batch_end(self, batch, logs=None):
        if batch == self.batch and self.who:
            raise ValueError("bad batch on this task")

def raises(batch, who):
    fit(9, callbacks=[Raise(batch, who)])

def endless():
    while True:
        time.sleep(0.01)

def broken():
    for i in range(9):
        if i == 3 and last:
            raise OSError("no such file")
        yield x, y
reads = tf.data.Dataset.from_generator(broken, output_signature=(
    tf.TensorSpec(x.shape, tf.float32), tf.TensorSpec(y.shape, tf.float32)))

def parts():
    metrics = {id(v._value) for m in model.metrics for v in m.variables}
    known = strategies.tracked_variables()
    return {n: v.values[0] for n, v in known.items() if id(v) not in metrics}

def state():
    return {n: one.numpy().copy() for n, one in parts().items()}

def same(a, b):
    return all(np.allclose(a[n], b[n], rtol=1e-6, atol=1e-7) for n in kept)

def restore(values):
    for n, one in parts().items():
        if n in values:
            one.assign(values[n])

def step():
    return int(model.optimizer.iterations.numpy())

def keep():
    global kept, at
    kept, at = state(), step()

def as_undisturbed():
    '''Train on; then train an undisturbed twin for as many steps, and compare them.'''
    fit(3)
    found, steps = state(), step() - at
    restore(kept)
    fit(steps)
    return same(found, state()), steps

fit()
"""


class Gang:
    """Live cells on some tasks that share a model."""

    def __init__(self, live, tasks):
        self.live, self.tasks = live, tasks
        self.names = [f"worker:{i}" for i in range(tasks)]

    def cell(self, source, tasks=None):
        """Run a cell to its end, which must come."""
        cell = self.live.begin(source, tasks, name="In [7]")
        while not cell.over:
            assert cell.news(SECONDS) is not None, "the cell hangs"
        assert cell.why == "answered"
        return cell

    def values(self, source):
        return [one.value["text/plain"] for one in self.live.run(source).values()]

    def check(self, least):
        """Check that all tasks have one state, that of a twin that had no accident."""
        found = self.values("as_undisturbed()")
        assert len(set(found)) == 1
        assert eval(found[0])[0] is True
        assert eval(found[0])[1] >= least + 3


@pytest.fixture
def pair(warm_pair):
    """Two tasks that share nothing yet."""
    with warm_pair.live() as live:
        yield Gang(live, 2)


@pytest.fixture(scope="module", params=[2, 3])
def gang(request, tmp_path_factory):
    with Cluster(request.param, directory=tmp_path_factory.mktemp("gang"), grace=1.0) as cluster:
        live = cluster.live()
        live.run(NETWORK + BUILD)
        yield Gang(live, request.param)


ACCIDENTS = {
    "an error in batch 3": ("raises(3, last)", 4),
    "the first task's error": ("raises(1, rank == 0)", 2),
    "a name that one does not know": ("if last: unknown\nfit()", 0),
    "the first's own error before all": ("if rank == 0: 1 / 0\nfit()", 0),
    "a generator that fails": ("model.fit(reads, verbose=0)", 0),
    "an error whose consequences some code takes": (
        "try:\n    raises(1, last)\nexcept Exception:\n    assert not last\n    endless()",
        2,
    ),
    "an evaluation": ("if last: 1 / 0\nmodel.evaluate(data, steps=2, verbose=0)", 0),
    "a prediction": ("if last: 1 / 0\nmodel.predict(x, verbose=0)", 0),
}


def errors(cell):
    """Return what each task raised of itself."""
    return {t: a.raised.type for t, a in cell.ranked().items() if a.raised and not a.freed}


@pytest.mark.parametrize("accident", ACCIDENTS)
def test_training_goes_on_after(gang, accident):
    source, steps = ACCIDENTS[accident]
    gang.live.run("keep()")
    cell = gang.cell(source)
    raised = errors(cell)
    assert len(raised) == 1
    freed = {task for task, one in cell.answers.items() if one.freed}
    assert freed | {*raised} == {*gang.names}
    assert {*cell.freed["freed"]} == freed
    assert cell.freed["raised"] == [*raised]
    assert cell.recovered["outcome"] == "aligned"
    assert cell.recovered["counted"]
    gang.check(steps)


def test_several_that_raise_at_once_free_the_rest(gang):
    gang.live.run("keep()")
    cell = gang.cell("raises(1, rank > 0)")
    assert set(errors(cell)) == {*gang.names[1:]}
    gang.check(2)


def test_a_task_that_waits_for_one_that_has_finished_is_freed(gang):
    gang.live.run("keep()")
    cell = gang.cell("if not last: fit()")
    assert cell.freed["freed"] == gang.names[:-1]
    assert cell.freed["finished"] == gang.names[-1:]
    gang.check(0)


def test_a_task_that_waits_for_one_outside_the_cell_is_freed(gang):
    cell = gang.cell("fit()", [0])
    assert cell.freed["absent"] == gang.names[1:]
    with pytest.raises(WorkerFailed, match="worker:0 waited in a collective for ever"):
        gang.live.check(cell, "In [7]")


def test_an_interrupted_training_goes_on(gang):
    gang.live.run("keep()")
    cell = gang.live.begin("fit(100_000)")
    news = cell.news(SECONDS)
    assert news is not None
    gang.live.interrupt(cell)
    while not cell.over:
        assert cell.news(SECONDS) is not None, "the cell hangs"
    assert all(one.raised for one in cell.answers.values())
    gang.check(0)


@pytest.mark.timeout(600)
def test_after_a_series_of_accidents_training_is_as_if_undisturbed(gang):
    dice = random.Random(gang.tasks)
    for _ in range(6):
        gang.live.run("keep()")
        who, batch = dice.randrange(gang.tasks), dice.randrange(5)
        source = dice.choice(
            [
                f"raises({batch}, rank == {who})",
                f"raises({batch}, rank != {who})",
                f"time.sleep(0.5 * (rank == {who}))\nraises({batch}, last)",
                f"fit(3 + (rank == {who}))",
                f"if rank == {who}: unknown\nfit()",
                "fit(3)",
            ]
        )
        gang.cell(source)
        gang.check(0)


LOOP = """
with strategy.scope():
    own = tf.keras.Sequential([
        tf.keras.Input((16,)), tf.keras.layers.Dropout(0.2), tf.keras.layers.Dense(1)])
    optimizer = tf.keras.optimizers.Adam()
    optimizer.build(own.trainable_variables)

def replica():
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((own(x, training=True) - y) ** 2) / tasks
    optimizer.apply_gradients(
        zip(tape.gradient(loss, own.trainable_variables), own.trainable_variables))

@tf.function
def once():
    strategy.run(replica)

def loop(steps, who=False):
    for i in range(steps):
        if who and i == 2:
            raise ValueError("bad batch on this task")
        once()

def sums():
    return [float(abs(v.numpy()).sum()) for v in (*own.variables, *optimizer.variables)]

once()
kept = state()
loop(5)
twin = sums()
restore(kept)
sums() != twin
"""


def test_a_loop_of_the_users_own_goes_on(gang):
    assert gang.values(LOOP) == ["True"] * gang.tasks
    cell = gang.cell("loop(5, who=last)")
    assert cell.freed["freed"] == gang.names[:-1]
    assert cell.recovered["counted"]
    gang.live.run("loop(3)")
    assert gang.values("bool(np.allclose(sums(), twin, rtol=1e-6))") == ["True"] * gang.tasks


EIGHT = """
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
rank = strategy.cluster_resolver.task_id
total = tf.function(lambda: strategy.run(
    lambda: tf.distribute.get_replica_context().all_reduce("sum", tf.constant(2.0))))
float(total())
"""


def test_seven_that_wait_for_one_are_freed(tmp_path):
    with Cluster(8, directory=tmp_path, grace=1.0) as cluster:
        gang = Gang(cluster.live(), 8)
        gang.live.run(EIGHT)
        cell = gang.cell("if rank == 3: raise ValueError('bad batch')\nfloat(total())")
        assert errors(cell) == {"worker:3": "ValueError"}
        assert cell.freed["freed"] == [name for name in gang.names if name != "worker:3"]
        assert gang.values("float(total())") == ["16.0"] * 8


def test_a_session_of_hundreds_of_errors_goes_on(pair):
    pair.live.run(EIGHT)
    for _ in range(2**31 // EPOCH_KEYS + 1):
        assert len(errors(pair.cell("1 / 0"))) == 2
    made = "with strategy.scope(): variable = tf.Variable(3.0)\nfloat(variable.numpy())"
    assert pair.values(made) == ["3.0"] * 2
    assert pair.values("float(total())") == ["4.0"] * 2


FIRST = """
strategy = tf.distribute.MultiWorkerMirroredStrategy()
{}
with strategy.scope():
    variable = tf.Variable(1.0)
reduce = tf.function(lambda: strategy.run(
    lambda: tf.distribute.get_replica_context().all_reduce("sum", variable.read_value())))
float(reduce())
"""
"""The very first collective is the one that gives a variable its value."""


def test_no_strategy_is_made_where_one_task_does_not_come(pair):
    make = "import tensorflow as tf\n{}tf.distribute.MultiWorkerMirroredStrategy()"
    cell = pair.cell(make.format("import os\nif '1' in os.environ['MWMAGIC_TASK']: 1 / 0\n"))
    assert cell.freed["freed"] == ["worker:0"]
    cell = pair.cell(make.format(""), [1])
    assert cell.freed["absent"] == ["worker:0"]
    assert pair.values(make.format("") + ".num_replicas_in_sync") == ["2", "2"]
    broken = "if strategy.cluster_resolver.task_id == {}: 1 / 0"
    for task in range(2):
        cell = pair.cell(FIRST.format(broken.format(task)))
        assert errors(cell) == {f"worker:{task}": "ZeroDivisionError"}
        assert pair.values(FIRST.format("")) == ["2.0", "2.0"]


def test_a_strategy_made_again_waits_for_the_tasks_that_are_slower(pair):
    pair.live.run("import tensorflow as tf" + FIRST.format(""))
    pair.cell(LATE)
    for _ in range(2):
        cell = pair.cell(FIRST.format(""))
        assert errors(cell) == {}
        assert cell.freed is None


TWO = """
import os
import tensorflow as tf
rank = int(os.environ['MWMAGIC_TASK'][-1])
def adding(count):
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    one = tf.ones(count) * (1.0 + rank)
    return tf.function(lambda: strategy.run(
        lambda: tf.distribute.get_replica_context().all_reduce("sum", one)))
first, second = adding(3), adding(4)
def alternate():
    return [float(tf.reduce_sum(one())) for _ in range(6) for one in (first, second)]
for _ in range(4):
    first()
alternate()
"""


def test_strategies_of_one_session_do_not_disturb_each_other(pair):
    assert pair.values(TWO) == [str([9.0, 12.0] * 6)] * 2
    pair.cell("if rank == 0: raise ValueError\nfirst()")
    assert pair.values("third = adding(5)\nalternate()") == [str([9.0, 12.0] * 6)] * 2
    assert pair.values("float(tf.reduce_sum(third()))") == ["15.0"] * 2


def test_a_killed_task_ends_the_session_also_when_another_raises(gang):
    pid = pid_of(gang.live.process, gang.names[-1])
    cell = gang.live.begin("if rank == 0: raise ValueError\nfit(100_000)")
    cell.news(SECONDS)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    while not cell.over:
        assert cell.news(SECONDS) is not None, "the cell hangs"
    with pytest.raises(RunFailed):
        gang.live.process.wait(120)
