"""`mwmagic scale`: sizes that train, fail, report nothing and end too early."""

from __future__ import annotations

import json

import pytest

from mwmagic.cli import main

PROGRAM = """\
import time

from mwmagic.worker import cluster_size, report

size = cluster_size()
if size == 3:
    raise ValueError("not with three")
for step in range(10 if size == 2 else 100_000):
    time.sleep(0.01)
    report(step=step)
"""


@pytest.mark.slow
def test_sizes_that_fail_or_end_early_do_not_end_a_study(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "main.py").write_text(PROGRAM)
    options = ["--framework", "jax", "--grace", "0.2", "--steps", "50", "--strong"]
    assert main(["scale", "main.py", "1", "2", "3", *options]) == 1
    shown = capsys.readouterr()
    assert "mwmagic: 2 workers: run 2" in shown.err
    assert "no speeds can be compared: fewer than two sizes were measured" in shown.out
    assert "2 workers: run 2 ended with less than 1 s of training" in shown.out
    assert "3 workers (run 3) failed: " in shown.out
    assert "ValueError: not with three" in shown.out
    assert main(["scale", "--show", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [one["workers"] for one in found["sizes"]] == [1, 2, 3]
    assert 30 < found["sizes"][0]["steps_per_second"] < 101
    assert found["sizes"][1]["steps_per_second"] is None
    assert main(["scale", "--show", "2"]) == 2
    assert "there is no scaling 2; there are 1" in capsys.readouterr().err
    assert main(["scale", "main.py", "1", "2", "-n", "2"]) == 2
    assert "the sizes follow the script" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.tensorflow
def test_keras_counts_the_samples_that_are_compared(tmp_path, monkeypatch):
    from mwmagic import scale

    (tmp_path / "train.py").write_text(KERAS)
    monkeypatch.chdir(tmp_path)
    found = scale("train.py", [1, 2], steps=20, directory=tmp_path, grace=1).study()
    assert [one.samples for one in found.sizes] == [32, 64]
    assert found.mode == "weak"
    one, two = found.rows()
    assert one["samples_per_second"] == pytest.approx(32 * one["steps_per_second"])
    assert two["efficiency"] == pytest.approx(two["speedup"] / 2)
    assert two["speedup"] > 0


KERAS = """\
import numpy as np
import tensorflow as tf
from mwmagic.worker import cluster_size

strategy = tf.distribute.MultiWorkerMirroredStrategy()
x, y = np.zeros((512, 4), "float32"), np.zeros((512, 1), "float32")
data = tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(32 * cluster_size())
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Input((4,)), tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
model.fit(data, epochs=1000, steps_per_epoch=500, verbose=0)
"""
