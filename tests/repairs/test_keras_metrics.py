"""Sums over samples stay on their worker; only what is no sum is updated from the whole batch."""

import pytest
from gangs import found

pytestmark = [pytest.mark.slow, pytest.mark.tensorflow]

TRAINS = """
import json, warnings
import keras
import numpy as np
import tensorflow as tf
import mwmagic.keras
from mwmagic.repairs import metrics

strategy = tf.distribute.MultiWorkerMirroredStrategy()


class Own(keras.metrics.Metric):
    def __init__(self, name, update):
        super().__init__(name=name)
        self.total, self.update = self.add_weight(initializer="zeros", name="total"), update

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.total.assign(self.update(self.total, y_true, y_pred))

    def result(self):
        return self.total


class Inner(keras.metrics.Precision):
    def update_state(self, y_true, y_pred, sample_weight=None):
        return super().update_state(y_true > 0.5, tf.nn.sigmoid(y_pred), sample_weight)


def of_each(y_true, y_pred):
    return tf.reduce_sum(tf.abs(y_true - y_pred), axis=-1)


def of_batch(y_true, y_pred):
    return tf.reduce_max(y_pred)


ops = keras.ops
mine = [
    Own("added", lambda total, y, p: total + ops.sum(ops.abs(y - p))),
    Own("largest", lambda total, y, p: ops.maximum(total, ops.max(p))),
    Own("mean", lambda total, y, p: total + ops.mean(p)),
    Own("batches", lambda total, y, p: total + 1.0),
    Own("squared", lambda total, y, p: total + ops.sum(p) ** 2),
    Own("never", lambda total, y, p: total + 0.0 * ops.sum(p)),
    Inner(name="inner"),
    of_each,
    of_batch,
]
x, y = np.linspace(-1, 1, 22)[:, None].astype("float32"), np.eye(2, dtype="float32")[[0, 1] * 11]
said = {}
for name, limit in ("all", metrics.SAMPLE_LIMIT), ("large", 3):
    metrics.SAMPLE_LIMIT = limit
    with strategy.scope():
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(2)])
        model.compile("sgd", "mse", metrics=mine if name == "all" else [of_batch])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(x, y, batch_size=8, verbose=0, shuffle=False)
    said[name] = sorted({str(each.message) for each in caught if "mixes" in str(each.message)})
    if name == "all":
        inner = {each.name: each for each in model._compile_metrics.metrics}
        said["alike"] = sorted(each for each in inner if metrics.alike(inner[each]))
        said["left"] = [each for each in inner if "update_state" in vars(inner[each])]


class Mean(keras.Model):
    def call(self, x):
        return tf.reduce_mean(x)


with strategy.scope():
    model = Mean()
try:
    model.predict(x, verbose=0)
except ValueError as error:
    said["predict"] = str(error)
print("found " + json.dumps(said))
"""


def test_only_what_is_no_sum_is_updated_from_the_whole_batch(with_keras, tmp_path):
    for said in found(tmp_path, TRAINS, with_keras):
        whole = ["batches", "largest", "mean", "never", "of_batch", "squared"]
        assert said["alike"] == whole  # and neither `added` nor `inner` nor `of_each`
        assert said["left"] == said["all"] == []
        [large] = said["large"]
        assert "the metric of_batch mixes the samples of a batch" in large
        assert "self.total.assign_add(ops.sum(values))" in large
        assert "Return a value for each sample" in said["predict"]
