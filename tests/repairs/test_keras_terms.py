"""What a step computes of a share instead of the batch is pointed out, and nothing else."""

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
kinds = {
    "alone": "computes its loss without compute_loss",
    "term": "has a term",
    "changed": "changes the gradients",
    "compared": "compares the samples",
}


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


class Changing(Model):
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = error(y, self(x, training=True))
        weights = self.trainable_variables
        grads = [tf.convert_to_tensor(grad) for grad in tape.gradient(loss, weights)]
        self.optimizer.apply(self.own(grads, weights), weights)
        return {"loss": loss}


class Comparing(keras.Model):
    def __init__(self, loss):
        super().__init__()
        self.dense = keras.layers.Dense(3)
        self.own = loss

    def call(self, x):
        return self.dense(tf.cast(x, tf.float32))

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        each = self.own(tf.math.l2_normalize(y_pred, axis=1))
        return super().compute_loss(x, tf.zeros_like(y_pred), each)


def size(model):
    return tf.reduce_mean(tf.square(model.known(tf.range(4))))


def tried(name, cls, loss, drop_remainder=False, **options):
    with strategy.scope():
        model = cls(loss)
        model.compile("sgd", "mse", **options)
    samples = tf.data.Dataset.from_tensor_slices((np.ones((8, 1), int), np.ones((8, 1), "float32")))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(samples.batch(4, drop_remainder=drop_remainder), epochs=1, verbose=0)
    texts = [str(each.message) for each in caught]
    said[name] = [kind for kind, words in kinds.items() if any(words in text for text in texts)]


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

tried("clipped by the global norm", Changing, lambda g, w: tf.clip_by_global_norm(g, 0.1)[0])
tried("clipped by norms", Changing, lambda g, w: [tf.clip_by_norm(each, 0.1) for each in g])
tried("clipped by value", Changing, lambda g, w: [tf.clip_by_value(each, -1, 1) for each in g])
tried("normalised", Changing, lambda g, w: [each / (tf.norm(each) + 1e-8) for each in g],
      steps_per_execution=2)
tried("decayed", Changing, lambda g, w: [a + 0.1 * b for a, b in zip(g, w)])
tried("untouched", Changing, lambda g, w: g)
tried("scaled, masked and centred", Changing, lambda g, w: [
    tf.cast(tf.cast(0.5 * each, "float64") / 3, "float32") * tf.ones_like(each)
    - tf.reduce_mean(each) for each in g])
tried("finite", Changing, lambda g, w: [tf.where(tf.math.is_finite(each), each, 0) for each in g])
tried("summed and clipped", Changing, lambda g, w: [each / replicas for each in
      tf.clip_by_global_norm(tf.distribute.get_replica_context().all_reduce("SUM", g), 0.1)[0]])
tried("multiplied", Comparing, lambda p: tf.matmul(p, p, transpose_b=True) @ p)
tried("multiplied, static", Comparing, lambda p: tf.matmul(p, tf.transpose(p)) @ p,
      drop_remainder=True)
tried("summed up", Comparing, lambda p: keras.ops.einsum("id,jd->ij", p, p) @ p)
tried("subtracted", Comparing, lambda p: tf.reduce_mean(tf.abs(p[:, None] - p[None]), axis=1))
tried("a sample's own", Comparing, lambda p: tf.reduce_mean(p[:, None] - p[:, :, None], axis=1)
      + tf.matmul(p[:, :, None] * p[:, None], p[:, :, None])[..., 0])
tried("attention", Comparing, lambda p: p * tf.reduce_mean(tf.einsum("btd,bsd->bts",
      *[tf.tile(p[:, None], (1, tf.shape(p)[0], 1))] * 2), axis=1)[:, :1])
tried("positions", Comparing, lambda p: p * tf.reduce_mean(
    tf.range(tf.cast(tf.shape(p)[0], "float32"))[:, None]
    - tf.range(tf.cast(tf.shape(p)[0], "float32"))[None]))
print("found " + json.dumps(said))
"""

RIGHT = {
    *("compute_loss and a part of it", "what Keras adds and scales", "divided"),
    *("untouched", "scaled, masked and centred", "finite", "summed and clipped"),
    *("a sample's own", "attention", "positions"),
}
ALONE = {"alone", "alone, eager"}
BESIDE = {"sum(self.losses)", "in compute_loss", "several steps"}
CHANGED = {
    *("clipped by the global norm", "clipped by norms", "clipped by value", "normalised"),
    "decayed",
}
COMPARED = {"multiplied", "multiplied, static", "summed up", "subtracted"}


def test_what_a_step_computes_of_a_share_is_pointed_out(with_keras, tmp_path):
    kinds = {"alone": ALONE, "term": BESIDE, "changed": CHANGED, "compared": COMPARED}
    expected = {name: [] for name in RIGHT}
    expected |= {name: [kind] for kind, names in kinds.items() for name in names}
    assert found(tmp_path, TRAINS, with_keras) == [expected, expected]
