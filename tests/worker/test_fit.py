"""What `fit` reports by itself, against a loop by hand."""

from __future__ import annotations

import ast
import os
from pathlib import Path

import pytest
from regression import DATA, SETUP, losses
from reports import run

from mwmagic.experiments.series import Series
from mwmagic.record import RunPaths
from mwmagic.worker import watch

TORCH = Path(__file__).parents[2] / ".torch"


def script(*lines, keras="keras"):
    return "\n".join([f"import {keras} as keras", DATA, SETUP, *lines])


def steps(found, **place):
    """Return the reports of steps, apart from those of epochs."""
    return [
        one
        for one in found
        if one["kind"] == "train" and one["metrics"] and not one.get("final")
        if all(one.get(name) == value for name, value in place.items())
    ]


def ends(found, kind="train"):
    return [one for one in found if one["kind"] == kind and one.get("final")]


def check(found, printed, epochs=2, batch=8):
    """Hold reports of the regression to a loop by hand, and to what `fit` returned."""
    each, means, after = losses(epochs, batch)
    assert [one["metrics"]["loss"] for one in steps(found)] == pytest.approx(each, rel=1e-4)
    assert [(one["epoch"], one["step"]) for one in steps(found)] == [
        (epoch, step) for epoch in (1, 2) for step in (1, 2, 3, 4)
    ]
    assert [one["metrics"]["loss"] for one in ends(found)] == pytest.approx(means, rel=1e-4)
    told = [one["metrics"] for one in ends(found, "validation")]
    assert [one["val_loss"] for one in told] == pytest.approx(after, rel=1e-4)
    assert not any("val_loss" in one["metrics"] for one in ends(found))
    history = {one["name"]: one["values"] for one in found if one["kind"] == "history"}
    assert history == ast.literal_eval(printed.splitlines()[-1])
    assert {one["epochs"] for one in steps(found)} == {2}
    assert {one["steps"] for one in steps(found)} == {4}


FIT = (
    "told = build().fit(x, y, batch_size=8, epochs=2, shuffle=False, validation_data=(x, y))",
    "print({name: [float(v) for v in values] for name, values in told.history.items()})",
)


@pytest.mark.slow
@pytest.mark.tensorflow
@pytest.mark.parametrize("backend", ["tensorflow", "jax", "torch", "legacy"])
def test_each_step_is_reported_as_a_loop_by_hand_has_it(tmp_path, backend):
    if backend == "torch" and not TORCH.exists():
        pytest.skip("needs PyTorch")
    keras = "tf_keras" if backend == "legacy" else "keras"
    env = {} if backend == "legacy" else {"KERAS_BACKEND": backend}
    if backend == "torch":
        env["PYTHONPATH"] = f"{os.environ.get('PYTHONPATH', '')}:{TORCH}"
    found, out, err = run(tmp_path, script(*FIT, keras=keras), **env)
    assert "mwmagic: " not in err
    check(found, out)


KINDS = (
    "build(metrics=['mae']).fit(x, y, batch_size=8, epochs=3, shuffle=False, verbose=0)",
    "fast = build(steps_per_execution=2)",
    "fast.fit(x[:24], y[:24], batch_size=8, epochs=4, shuffle=False, verbose=0)",
    """
class Own(keras.Model):
    def __init__(self):
        super().__init__()
        self.layer = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
    def call(self, x):
        return self.layer(x)
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(x) - y) ** 2)
        gradients = tape.gradient(loss, self.trainable_weights)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_weights))
        return {"loss": loss}

class Inner(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs):
        build().fit(x, y, epochs=9, verbose=0)

import tensorflow as tf
own = Own()
own.compile(keras.optimizers.SGD(0.1))
own.fit(x, y, batch_size=8, epochs=5, shuffle=False, verbose=0, callbacks=[Inner()])
one = build()
mine = keras.callbacks.CallbackList([], add_history=True, model=one, epochs=6, steps=4)
one.fit(x, y, batch_size=8, epochs=6, shuffle=False, callbacks=mine, verbose=0)
print([type(callback).__name__ for callback in mine.callbacks])
one.evaluate(x, y, verbose=0)
try:
    one.fit(x, y, epochs=7, verbose=0, callbacks=[keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: 1 / 0)])
except ZeroDivisionError as error:
    import traceback
    print([frame.filename for frame in traceback.extract_tb(error.__traceback__)
           if "mwmagic/worker/watch" in frame.filename])
one.fit(x, y, batch_size=8, epochs=8, shuffle=False, verbose=0)
""",
)


@pytest.mark.slow
@pytest.mark.tensorflow
def test_every_kind_of_fit(tmp_path):
    found, out, err = run(tmp_path, script(*KINDS))
    assert "mwmagic: " not in err, err

    def told(epochs):
        return [one["metrics"]["loss"] for one in steps(found, epochs=epochs)]

    assert told(3) == pytest.approx(losses(3, 8)[0], rel=1e-4)
    assert {*steps(found, epochs=3)[0]["metrics"]} == {"loss", "mae"}
    by_one = losses(1, 8)[0]
    assert [one["step"] for one in steps(found, epochs=4, epoch=1)] == [2, 3]
    assert told(4)[:2] == pytest.approx([(by_one[0] + by_one[1]) / 2, by_one[2]], rel=1e-4)
    assert told(5) == pytest.approx(losses(5, 8)[0], rel=1e-4)  # of its own train_step
    assert told(6) == pytest.approx(losses(6, 8)[0], rel=1e-4)
    assert told(9) == []  # a fit inside a fit
    assert len(told(8)) == 8 * 4  # after a fit that failed
    assert out.splitlines() == ["['History']", "[]"]
    assert [one["metrics"]["loss"] for one in ends(found, "evaluate")] == pytest.approx(
        [losses(6, 8)[2][-1]], rel=1e-4
    )


LOGS = """
class Told(keras.Sequential):
    def train_step(self, data):
        nested = {"inner": 2.5, "deep": {"whole": 3}}
        return {**super().train_step(data), "nested": nested, "yes": True, "text": "words",
                "none": None, "vector": data[1][:2, 0]}

class Adds(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs):
        logs.update(rate=self.model.optimizer.learning_rate, more={"four": 4})

one = Told([keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")])
one.compile(keras.optimizers.SGD(0.1), "mse")
one.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0, callbacks=[Adds()])
"""


@pytest.mark.slow
@pytest.mark.tensorflow
def test_what_is_no_number_ends_no_report(tmp_path):
    found, _, err = run(tmp_path, script(LOGS))
    numbers = {"inner": 2.5, "whole": 3.0, "yes": 1.0}
    assert [one["metrics"]["loss"] for one in steps(found)] == pytest.approx(
        losses(2, 8)[0], rel=1e-4
    )
    for one in steps(found):
        assert {**one["metrics"], **numbers} == one["metrics"]
    added = [one["metrics"] for one in ends(found) if "rate" in one["metrics"]]
    assert added == [{"rate": pytest.approx(0.1), "four": 4.0}] * 2
    lines = [line for line in err.splitlines() if "mwmagic" in line]
    told = [line.partition(" is not reported")[0] for line in lines]
    assert sorted(told) == [f"mwmagic: {name}" for name in ("more", "none", "text", "vector")]


def chosen(paces, delay):
    """Return the steps that a worker reports which learns of each later than the others."""
    choice, shared, steps = watch.StepChoice(), 0.0, []
    for step, pace in enumerate(paces, 1):
        shared += pace
        if choice.takes(shared + delay * (step % 7), lambda now=shared: now % 3600):
            steps.append(step)
    return steps


def test_workers_that_train_together_report_the_same_steps():
    paces = [5.0, *[0.0004] * 3000, *[0.02] * 500, *[3.0] * 20, *[0.13] * 60]
    steps = chosen(paces, 0.0)
    assert chosen(paces, 0.05) == steps
    assert len(steps) < 150
    assert steps[:3] == [1, 2, 4]
    assert set(range(3502, 3520)) <= set(steps), "a slow step is shown when it is done"
    assert len([step for step in steps if step > 3550]) > 20


WORKERS = """
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
import keras
{data}{setup}
with strategy.scope():
    model = build()
data = tf.data.Dataset.from_tensor_slices((x, y)).batch({batch})
told = model.fit(data, epochs=2, validation_data=data)
from mwmagic.worker import is_chief
print(told.history if is_chief() else "", flush=True)
"""


@pytest.mark.slow
@pytest.mark.tensorflow
def test_two_workers_tell_the_loss_of_the_whole_batch(warm_pair, tmp_path):
    code = WORKERS.format(data=DATA, setup=SETUP, batch=10)
    one = warm_pair.run("main.py", source=code, cwd=tmp_path).wait()
    each, means, after = losses(2, 10)
    for task in ("worker:0", "worker:1"):
        found = [entry for entry in one.metrics() if entry["task"] == task]
        assert {entry["source"] for entry in found} == {"report"}
        assert [e["metrics"]["loss"] for e in steps(found)] == pytest.approx(each, rel=1e-4)
        assert [e["metrics"]["loss"] for e in ends(found)] == pytest.approx(means, rel=1e-4)
        told = [entry["metrics"]["val_loss"] for entry in ends(found, "validation")]
        assert told == pytest.approx(after, rel=1e-4)
    assert one.history() == ast.literal_eval(one.logs(0).decode().splitlines()[-1])


@pytest.mark.slow
@pytest.mark.tensorflow
def test_two_workers_show_one_curve(warm_pair, tmp_path):
    """The first and the last step of each epoch are in it, the last batch being smaller."""
    setup = SETUP.replace(" = 0.0  # every step is sent", "")
    code = WORKERS.format(data=DATA, setup=setup, batch=4).replace("epochs=2", "epochs=40")
    one = warm_pair.run("main.py", source=code, cwd=tmp_path).wait()
    series = Series(RunPaths(one.record.path).metrics, {"worker:0", "worker:1"})
    while series.read():
        pass
    curves = [
        [(point.x, point.y) for point in series.points if point.key[::2] == (task, "loss")]
        for task in ("worker:0", "worker:1")
    ]
    assert curves[0] == curves[1]
    each, _, _ = losses(40, 4)
    told = dict(curves[0])
    assert set(range(1, 320, 8)) | set(range(8, 321, 8)) <= set(told)
    assert list(told.values()) == pytest.approx([each[int(x) - 1] for x in told], rel=1e-3)
    assert len(told) < 320
