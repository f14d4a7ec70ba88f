"""A part of the loss that the user's code computes is pointed out, until it is divided."""

import pytest
from gangs import found

pytestmark = [pytest.mark.slow, pytest.mark.tensorflow]

TRAINS = """
import json, warnings
import keras
import numpy as np
import tensorflow as tf
import mwmagic.keras

strategy = tf.distribute.MultiWorkerMirroredStrategy()
replicas = strategy.num_replicas_in_sync
error = keras.losses.MeanSquaredError()
said = {}


class Model(keras.Model):
    def __init__(self, loss):
        super().__init__()
        self.known = keras.layers.Embedding(4, 3)
        self.dense = keras.layers.Dense(1, kernel_regularizer="l2")
        self.own = loss

    def call(self, x):
        return self.dense(self.known(x[:, 0]))


class Stepping(Model):
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.own(self, x, y, self(x, training=True))
        weights = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, weights), weights)
        return {"loss": loss}


class Computing(Model):
    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        return self.own(self, x, y, y_pred)


def size(model):
    return tf.reduce_mean(tf.square(model.known(tf.range(4))))


def tried(name, cls, loss, **options):
    with strategy.scope():
        model = cls(loss)
        model.compile("sgd", "mse", **options)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(np.ones((8, 1), int), np.ones((8, 1)), batch_size=4, epochs=1, verbose=0)
    texts = {str(each.message) for each in caught if "Gradients are summed" in str(each.message)}
    said[name] = sorted(text.partition("has a term")[1] or "alone" for text in texts)


tried("compute_loss and a part of it", Stepping,
      lambda m, x, y, p: 0.5 * m.compute_loss(x, y, p) + 0.5 * error(y, p) + 1.0)
tried("what Keras adds and scales", Computing, lambda m, x, y, p: Model.compute_loss(m, x, y, p),
      auto_scale_loss=True)
tried("sum(self.losses)", Stepping, lambda m, x, y, p: error(y, p) + sum(m.losses))
tried("in compute_loss", Computing,
      lambda m, x, y, p: Model.compute_loss(m, x, y, p) + 0.1 * size(m))
tried("several steps", Stepping, lambda m, x, y, p: error(y, p) + tf.reduce_mean(p),
      steps_per_execution=2)
tried("divided", Stepping,
      lambda m, x, y, p: error(y, p) + size(m) / replicas + size(m) * (1 / replicas)
      + tf.stop_gradient(size(m)))
tried("alone", Stepping, lambda m, x, y, p: tf.reduce_mean(tf.square(y - p)))
tried("alone, eager", Stepping, lambda m, x, y, p: tf.reduce_mean(tf.square(y - p)),
      run_eagerly=True)
print("found " + json.dumps(said))
"""

RIGHT = {"compute_loss and a part of it", "what Keras adds and scales", "divided"}
ALONE = {"alone", "alone, eager"}
BESIDE = {"sum(self.losses)", "in compute_loss", "several steps"}


def test_own_terms_are_pointed_out_until_they_are_divided(with_keras, tmp_path):
    expected = {name: [] for name in RIGHT} | {name: ["alone"] for name in ALONE}
    expected |= {name: ["has a term"] for name in BESIDE}
    assert found(tmp_path, TRAINS, with_keras) == [expected, expected]
