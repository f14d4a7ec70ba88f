"""Collectives that end at random moments of a step: the state is a whole step's, and equal."""

from __future__ import annotations

import random

import pytest

from mwmagic.model.live import CellNews

pytestmark = [pytest.mark.slow, pytest.mark.tensorflow]

TRIALS = 8
SECONDS = 120.0
"""How long a cell may take, on a busy machine, before it counts as hanging."""

STRATEGY = """
import threading
import time
import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context
from mwmagic.recovery.task import strategies
from mwmagic.recovery.task import updates as counted
packs = tf.distribute.experimental.CommunicationOptions(bytes_per_pack=16_384)
strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=packs)
rank = strategy.cluster_resolver.task_id
rng = np.random.default_rng(0)
x = rng.normal(size=(64, 128)).astype("float32")
y = (x.sum(1) > 0).astype("float32")[:, None]
data = tf.data.Dataset.from_tensors((x, y)).unbatch().batch(64).cache().repeat()
OPTIMIZERS = {
    "adam": lambda: tf.keras.optimizers.Adam(),
    "accumulation": lambda: tf.keras.optimizers.Adam(gradient_accumulation_steps=2),
    "averages": lambda: tf.keras.optimizers.SGD(
        0.01, momentum=0.9, use_ema=True, ema_overwrite_frequency=3
    ),
}

def end(seconds):
    time.sleep(seconds)
    context.context().abort_collective_ops(14, "ended by the test")

def trial(offsets):
    '''End this task's collectives so many seconds after a step has begun.'''
    restore()
    thread = threading.Thread(target=end, args=(offsets[rank],))
    thread.start()
    try:
        step()
    finally:
        thread.join()
    raise RuntimeError("the step was complete")

class Pause(tf.keras.metrics.Metric):
    '''Lets a step of one task take longer, after its weights are updated.'''

    seconds = 0.0

    def __init__(self):
        super().__init__(name="pause")
        self.count = self.add_weight(shape=(), initializer="zeros", name="count")

    def update_state(self, y_true, y_pred, sample_weight=None):
        waits = tf.py_function(lambda _: time.sleep(Pause.seconds), [y_pred], [])
        with tf.control_dependencies([waits]):
            self.count.assign_add(1.0)

    def result(self):
        return self.count.value

def late(lost):
    '''End all collectives once the weights are updated; one task may have lost the update.'''
    restore()
    done = int(counted.counters().done.numpy())
    Pause.seconds = 2.0 * rank
    def watch():
        while int(counted.counters().done.numpy()) == done:
            time.sleep(0.01)
        context.context().abort_collective_ops(14, "ended by the test")
    thread = threading.Thread(target=watch)
    thread.start()
    try:
        step()
    finally:
        thread.join()
        Pause.seconds = 0.0
        if lost and rank == 1:
            undo(done)

def undo(done):
    '''Leave this task as if the update had not come to it.'''
    for n, variable in strategies.tracked_variables().items():
        if n in start and not counted.is_local(variable):
            variable.values[0].assign(start[n])
    for one in (counted.counters().begun, counted.counters().done):
        one.assign(done)

def parts():
    known = strategies.tracked_variables()
    return {n: v.values[0] for n, v in known.items() if n >= first and id(v) not in metrics}

def state():
    return {n: one.numpy().copy() for n, one in parts().items()}

def restore():
    for n, one in parts().items():
        one.assign(start[n])

def same(a, b):
    return all(np.allclose(a[n], b[n], rtol=1e-6, atol=1e-7) for n in start)

def check():
    '''Return after which whole step the state is that of a twin, now and ten steps later.'''
    now = state()
    found = [steps for steps in (0, 1) if same(now, twin[steps])]
    if not found:
        return "torn"
    for _ in range(10):
        step()
    return found[0] if same(state(), twin[found[0] + 10]) else "drifted"
"""

MODEL = """
first = max(strategies.tracked_variables(), default=-1) + 1
tf.keras.utils.set_random_seed(7)
with strategy.scope():
    layers = []
    for _ in range(2):
        layers += [
            tf.keras.layers.Dense(128, activation="relu"),
            tf.keras.layers.BatchNormalization(),
            tf.keras.layers.Dropout(0.2),
        ]
    layers.append(tf.keras.layers.Dense(1, activation="sigmoid"))
    model = tf.keras.Sequential([tf.keras.Input((128,)), *layers])
    model.compile(OPTIMIZERS[{!r}](), "binary_crossentropy", metrics=[Pause()])
model.fit(data, steps_per_epoch=2, verbose=0)
metrics = {{id(v._value) for m in model.metrics for v in m.variables}}
iterator = iter(strategy.experimental_distribute_dataset(data))
model.make_train_function()
def step():
    model.train_function(iterator)
step()
start = state()
twin = [start]
began = time.monotonic()
for _ in range(11):
    step()
    twin.append(state())
(time.monotonic() - began) / 11
"""

ORDER = """
def before(operation):
    todo, found = [operation], set()
    while todo:
        one = todo.pop()
        for other in [*(each.op for each in one.inputs), *one.control_inputs]:
            if other.name not in found:
                found.add(other.name)
                todo.append(other)
    return found

def writes(operation):
    return operation.type.startswith(("Assign", "ResourceApply"))

graph = max(counted._SEEN, key=lambda one: len(one.get_operations()))
operations = graph.get_operations()
collectives = [i for i, one in enumerate(operations) if one.type.startswith("CollectiveReduce")]
late = [
    (operations[i].name, one.name)
    for i in collectives
    for one in operations[:i]
    if writes(one) and one.name not in before(operations[i])
]
shared = {
    id(one.values[0].handle)
    for one in strategies.tracked_variables().values()
    if not counted.is_local(one)
}
weights = {inside.name for outside, inside in graph.captures if id(outside) in shared}
names = [operations[i].name for i in collectives]
early = [
    one.name
    for i, one in enumerate(operations)
    if writes(one) and one.inputs[0].name in weights and not {*names[:-1]} <= before(one)
]
updates = [one for one in operations if writes(one) and one.inputs[0].name in weights]
len(collectives), len(updates), late, early
"""


def run(live, source):
    """Run a cell to its end, which must come; return its values, and what it was recovered to."""
    cell, recovered = live.begin(source), None
    while not cell.over:
        news = cell.news(SECONDS)
        assert news is not None, "the cell hangs"
        recovered = news[1] if news[0] is CellNews.RECOVERED else recovered
    return [one.value.get("text/plain") for one in cell.ranked().values()], recovered


@pytest.fixture(scope="module")
def live(warm_pair):
    with warm_pair.live() as live:
        live.run(STRATEGY)
        yield live


@pytest.fixture(scope="module")
def trained(live, request):
    """A model trained with an optimizer, of that name; and how long a step takes, in seconds."""
    values, _ = run(live, MODEL.format(request.param))
    return request.param, float(values[0])


def with_optimizers(*names):
    return pytest.mark.parametrize("trained", names, indirect=True, scope="module")


@with_optimizers("adam", "accumulation", "averages")
def test_wherever_a_step_is_cut_it_is_whole_or_undone(live, trained):
    optimizer, scale = trained
    dice = random.Random(optimizer)
    for _ in range(TRIALS):
        alike = dice.random() < 0.5
        offsets = [scale * dice.uniform(0.5, 1.3) for _ in range(2)]
        _, recovered = run(live, f"trial({offsets[:1] * 2 if alike else offsets})")
        assert recovered is None or recovered["outcome"] == "aligned"
        values, _ = run(live, "check()")
        assert values[0] == values[1]
        assert values[0] in {"0", "1"}
        scale *= 1.1 if values[0] == "0" else 0.9


@with_optimizers("adam")
@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.usefixtures("trained")
def test_all_tasks_get_what_one_knows_of_a_step(live, lost):
    _, recovered = run(live, f"late({lost})")
    assert recovered["outcome"] == "aligned"
    assert recovered["differed"] >= (20 if lost else 4), "moving statistics, or weights too"
    values, _ = run(live, "check()")
    assert values == ["1", "1"]


@with_optimizers("adam")
@pytest.mark.usefixtures("trained")
def test_no_collective_can_cut_an_update_short(live):
    [found, _], _ = run(live, ORDER)
    count, updates, late, early = eval(found)
    assert count >= 4, "several packs, and the logs"
    assert updates >= 30, "weights, and the optimizer's state"
    assert not late, "each begins after what was assigned before it"
    assert not early, "weights are updated after all gradients are reduced"
