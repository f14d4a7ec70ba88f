"""Trainings whose numbers must not depend on how many workers share the batch.

    python keras_rows.py DIRECTORY [ROW...]

Under a TF_CONFIG it trains with MultiWorkerMirroredStrategy, without one in a
single process, at the same global batch. DIRECTORY/<task>-<row>.npz holds what
a row came to. One that fails is the last: the workers may be out of step.
ROWS_KERAS=tf_keras trains with Keras 2. With ROWS_DEVICES=2 each worker has two virtual devices.
"""

import contextlib
import gc
import json
import os
import random
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import tensorflow as tf
from tensorflow.python.distribute.collective_all_reduce_strategy import CollectiveAllReduceExtended
from tensorflow.python.eager import context

from mwmagic.worker import runtime
from mwmagic.worker.runtime import configure_heartbeat
from mwmagic.worker.watch import Means

KERAS2 = os.environ.get("ROWS_KERAS") == "tf_keras"
if KERAS2:
    import tf_keras as keras
else:
    import keras
    from keras.src.utils.python_utils import pythonify_logs

    import mwmagic.keras  # noqa: F401 - for its effect

runtime.free_iterators_later()  # as workers do
layers = keras.layers
BATCH = 12
SIZE = 48
CLASSES = 3
RNG = np.random.default_rng(20)
X = RNG.normal(size=(SIZE, 8)).astype("float32")
Y = RNG.integers(0, CLASSES, SIZE)
ROWS = {}


@dataclass
class Row:
    """A training, what documentation calls it, and what it can be compared with."""

    run: object
    title: str
    keras2: bool = True
    single: bool = True
    tolerance: float = 2e-5


def row(title, **options):
    def register(function):
        ROWS[function.__name__] = Row(function, title, **options)
        return function

    return register


def batches(*arrays, batch=BATCH, **options):
    data = arrays if len(arrays) > 1 else arrays[0]
    return tf.data.Dataset.from_tensor_slices(data).batch(batch, **options)


def initialised(model):
    """Give kernels the same values in both generations of Keras."""
    values = np.random.default_rng(22)
    model.set_weights(
        [
            values.normal(scale=0.3, size=w.shape) if w.ndim > 1 else w  # biases stay
            for w in model.get_weights()
        ]
    )
    return model


def dense(*extra, **options):
    return initialised(
        keras.Sequential(
            [
                keras.Input((8,)),
                layers.Dense(16, activation="relu", **options),
                *extra,
                layers.Dense(CLASSES),
            ]
        )
    )


def compiled(model, optimizer=None, metrics=("accuracy",), **options):
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    options = {"loss": loss, **options}
    model.compile(optimizer=optimizer or sgd(), metrics=list(metrics), **options)
    return model


def sgd(**options):
    return keras.optimizers.SGD(0.1, momentum=0.9, **options)


def adam(**options):
    return keras.optimizers.Adam(0.01, **options)


def several():
    """Tell whether there are several workers: Keras alone reads ahead into the next epoch."""
    return "TF_CONFIG" in os.environ


def state(model):
    """Every weight and the optimizer's state."""
    variables = model.optimizer.variables
    kinds = {
        "trainable": model.trainable_variables,
        "state": model.non_trainable_variables,
        "optimizer": variables() if callable(variables) else variables,
    }
    return {f"{kind}/{i}": w.numpy() for kind, all_ in kinds.items() for i, w in enumerate(all_)}


def trained(model, data=None, epochs=2, **options):
    """Fit, and return the history and the state."""
    data = batches(X, Y) if data is None else data
    history = model.fit(data, epochs=epochs, verbose=0, **options).history
    return {**{f"history/{k}": np.array(v) for k, v in history.items()}, **state(model)}


def predicted(model, x=X, **options):
    """Evaluate and predict, and tell whether predictions come in the samples' order."""
    result = model.predict(batches(x), verbose=0, **options)
    return {
        "evaluate": np.array(model.evaluate(batches(x, Y[: len(x)]), verbose=0)),
        "predict": result,
        "in_order": np.allclose(result, model(x), atol=1e-4),
    }


@row("`fit`, `evaluate`, `predict`")
def fit_evaluate_predict(scope):
    with scope():
        model = compiled(dense(), adam())
    return {**trained(model, epochs=3), **predicted(model)}


@row("`validation_data`, `validation_steps`, `validation_split`")
def validation(scope):
    with scope():
        model = compiled(dense())
    found = trained(model, validation_data=batches(X[:30], Y[:30]), validation_steps=2)
    more = trained(model, X, y=Y, batch_size=BATCH, validation_split=0.25, shuffle=False)
    return {**found, **{f"split/{key}": value for key, value in more.items()}}


@row("`steps_per_execution` above 1")
def steps_per_execution(scope):
    with scope():
        model = compiled(dense(), steps_per_execution=3)
    return {**trained(model), **predicted(model)}


@row("last batch smaller, and not a multiple of the workers")
def uneven_last_batch(scope):
    with scope():
        model = compiled(dense())
    return {**trained(model, batches(X[:41], Y[:41])), **predicted(model, X[:41])}


class Reports(keras.callbacks.Callback):
    """What the dashboard shows of each step."""

    def __init__(self):
        super().__init__()
        self.means, self.found = Means(keras.metrics.Mean), []

    def on_epoch_begin(self, epoch, logs=None):
        self.means.reset()

    def on_train_batch_end(self, batch, logs=None):
        self.means.stepped(self.model)
        self.found.append(self.means.read(self.model, logs))


@row("what is reported of each step, if the last batch is smaller", keras2=False)
def reported_steps(scope):
    with scope():
        model = compiled(dense())
    reports = Reports()
    found = trained(model, batches(X[:41], Y[:41]), callbacks=[reports])
    for name in reports.found[0]:
        found[f"step/{name}"] = np.array([step[name] for step in reports.found])
    return found


@row("last batch smaller than the number of workers")
def fewer_samples_than_workers(scope):
    with scope():
        model = compiled(dense())
    return {**trained(model, batches(X[:37], Y[:37])), **predicted(model, X[:37])}


@row("`drop_remainder` (static shapes)")
def static_shapes(scope):
    with scope():
        model = compiled(dense())
    return trained(model, batches(X[:41], Y[:41], drop_remainder=True))


@row("`distribute_datasets_from_function`, each worker with a batch size of its own", keras2=False)
def own_batch_sizes(scope):
    with scope():
        model = compiled(dense())
        strategy = tf.distribute.get_strategy()
    begin, end = ((0, 4), (4, BATCH))[TASK] if several() else (0, BATCH)
    parts = [part.reshape(-1, BATCH, *part.shape[1:])[:, begin:end] for part in (X, Y)]
    parts = [part.reshape(-1, *part.shape[2:]) for part in parts]
    own = batches(*parts, batch=end - begin, drop_remainder=True).repeat()  # its shapes are static
    data = strategy.distribute_datasets_from_function(lambda _: own) if several() else own
    return trained(model, data, steps_per_epoch=4)


@row("dataset that ends before `steps_per_epoch`", keras2=False)
def dataset_that_ends_early(scope):
    with scope():
        model = compiled(dense())
    return trained(model, batches(X, Y), steps_per_epoch=6)


@row("`class_weight`")
def class_weight(scope):
    with scope():
        model = compiled(dense())
    return trained(model, class_weight={0: 1.0, 1: 2.0, 2: 0.5})


@row("sample weights and `weighted_metrics`")
def sample_weight(scope):
    with scope():
        model = compiled(dense(), weighted_metrics=["accuracy"])
    return trained(model, batches(X, Y, np.linspace(0, 2, SIZE).astype("float32")))


@row("masks")
def masks(scope):
    values = np.random.default_rng(21)
    tokens, length = values.integers(1, 20, (SIZE, 7)), values.integers(1, 8, SIZE)
    tokens[np.arange(7) >= length[:, None]] = 0
    with scope():
        model = keras.Sequential(
            [
                keras.Input((7,)),
                layers.Embedding(20, 6, mask_zero=True),
                layers.SimpleRNN(5, return_sequences=True),
                layers.Dense(CLASSES),
            ]
        )
        compiled(initialised(model))
    return trained(model, batches(tokens, tokens % CLASSES))


@row("dict inputs, several outputs, `loss_weights`")
def nested_inputs_and_outputs(scope):
    with scope():
        a, b = keras.Input((5,), name="a"), keras.Input((3,), name="b")
        hidden = layers.Dense(8, activation="relu")(layers.concatenate([a, b]))
        outputs = {
            "kind": layers.Dense(CLASSES, name="kind")(hidden),
            "size": layers.Dense(1, name="size")(hidden),
        }
        model = initialised(keras.Model({"a": a, "b": b}, outputs))
        kind = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(
            sgd(),
            loss={"kind": kind, "size": "mse"},
            loss_weights={"kind": 1.0, "size": 0.3},
            metrics={"kind": ["accuracy"], "size": ["mae"]},
        )
    x = {"a": X[:, :5], "b": X[:, 5:]}
    found = trained(model, batches((x, {"kind": Y, "size": X[:, :1] * 2})))
    result = model.predict(batches((x,)), verbose=0)
    return {**found, **{f"predict/{k}": v for k, v in result.items()}}


def scalar(y, prediction):
    y = tf.one_hot(tf.cast(tf.reshape(y, [-1]), tf.int32), CLASSES)
    return tf.reduce_mean(tf.square(y - prediction))


@row("a loss function that returns a scalar")
def scalar_loss(scope):
    with scope():
        model = compiled(dense(), loss=scalar)
    return trained(model)


class Overrides(keras.losses.Loss):
    """A loss that computes a single number in `__call__`."""

    def __call__(self, y_true, y_pred, sample_weight=None):
        return scalar(y_true, y_pred)


class Extends(keras.losses.SparseCategoricalCrossentropy):
    """A loss that adds a term of its own to Keras's."""

    def __call__(self, y_true, y_pred, sample_weight=None):
        loss = super().__call__(y_true, y_pred, sample_weight)
        return 0.3 * loss + 0.1 * tf.reduce_mean(tf.square(y_pred))


def combined(**options):
    """Return a loss function that calls a loss object, and adds a term of its own."""
    part = keras.losses.SparseCategoricalCrossentropy(from_logits=True, **options)
    return lambda y, prediction: 0.1 * part(y, prediction) + scalar(y, prediction)


class Wraps(keras.losses.Loss):
    """A loss that returns what another loss object does."""

    def __init__(self):
        super().__init__()
        self.inner = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def call(self, y_true, y_pred):
        return self.inner(y_true, y_pred)


@row("losses that override `__call__`, and losses that call others", keras2=False)
def losses_of_losses(scope):
    made = {
        "overrides": Overrides(),
        "extends": Extends(from_logits=True),
        "combined": combined(),
        "sums": combined(reduction="sum"),
        "wraps": Wraps(),
    }
    found = {}
    for name, loss in made.items():
        for size in (SIZE, 37):  # of all the shapes are static
            with scope():
                model = compiled(dense(), loss=loss)
            data = batches(X[:size], Y[:size], drop_remainder=size == SIZE)
            for key, value in trained(model, data, epochs=1).items():
                found[f"{name}/{size}/{key}"] = value
    return found


class AddsLoss(layers.Layer):
    """The guides' endpoint layer: a keras.losses object inside a layer, and add_loss."""

    def __init__(self):
        super().__init__()
        self.squares = (
            keras.losses.MeanSquaredError(reduction="none")
            if KERAS2
            else keras.losses.MeanSquaredError()
        )

    def call(self, x):
        loss = self.squares(tf.zeros_like(x), x)
        self.add_loss(0.1 * (tf.reduce_mean(loss) if KERAS2 else loss))
        return x


@row("`add_loss` in a layer")
def loss_added_in_a_layer(scope):
    with scope():
        model = compiled(dense(AddsLoss()))
    return trained(model)


@row(
    "`add_loss`, regularizers, a scalar loss; last batch smaller than the number of workers",
    keras2=False,
)
def losses_without_samples(scope):
    l2 = keras.regularizers.L2(0.01)
    found = {}
    for size in (37, 41):
        with scope():
            model = dense(AddsLoss(), kernel_regularizer=l2, activity_regularizer=l2)
            compiled(model, loss=scalar)
        for key, value in trained(model, batches(X[:size], Y[:size])).items():
            found[f"{size}/{key}"] = value
    return found


@row("losses with `reduction='sum'` and `'none'`", keras2=False)
def other_reductions(scope):
    found = {}
    for reduction in ("sum", "none"):
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=reduction)
        with scope():
            model = compiled(dense(), keras.optimizers.SGD(0.01), loss=loss)
        for size in (SIZE, 37):  # of all the shapes are static
            data = batches(X[:size], Y[:size], drop_remainder=size == SIZE)
            for key, value in trained(model, data, epochs=1).items():
                found[f"{reduction}/{size}/{key}"] = value
    return found


@row("metrics that are not means (AUC, precision), and logs after every batch")
def many_metrics(scope):
    with scope():
        model = initialised(
            keras.Sequential([keras.Input((8,)), layers.Dense(1, activation="sigmoid")])
        )
        auc, precision = keras.metrics.AUC(name="auc"), keras.metrics.Precision(name="precision")
        model.compile(sgd(), "binary_crossentropy", metrics=["accuracy", auc, precision])
    seen = []
    spy = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda _, logs: seen.append([float(logs[k]) for k in sorted(logs)])
    )
    found = trained(model, batches(X, (Y > 1)[:, None].astype("float32")), callbacks=[spy])
    return {**found, "logs": np.array(seen)}


class Custom(keras.Model):
    def __init__(self):
        super().__init__()
        self.inner = dense()

    def call(self, x, training=False):
        return self.inner(x, training=training)


class TracksItsMean(Custom):
    """Tracks the mean of a batch, which is 0 / 0 on a worker without samples."""

    def __init__(self):
        super().__init__()
        self.tracker = keras.metrics.Mean(name="one")

    def train_step(self, data):
        self.tracker.update_state(tf.reduce_mean(tf.ones_like(data[1], tf.float32)))
        return {**super().train_step(data), "one": self.tracker.result()}


@row("a metric of means over batches, of which some workers have no samples", keras2=False)
def mean_without_samples(scope):
    with scope():
        model = compiled(TracksItsMean())
    return trained(model, batches(X[:37], Y[:37]))


class AddsLogs(keras.Sequential):
    """Logs its metrics as Keras's guides do, which nests the compiled ones, and two averages."""

    def train_step(self, data):
        largest = super().train_step(data)["largest"]
        logs = {metric.name: metric.result() for metric in self.metrics}
        return {**logs, "largest": largest, "mean": tf.reduce_mean(data[0])}

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        logs = super().compute_metrics(x, y, y_pred, sample_weight=sample_weight)
        return {**logs, "largest": tf.reduce_mean(tf.reduce_max(y_pred, axis=-1))}


@row("logs with keys that are not metrics, and nested ones", keras2=False)
def logs_with_other_keys(scope):
    with scope():
        model = initialised(AddsLogs([keras.Input((8,)), layers.Dense(3, activation="sigmoid")]))
        model.compile(sgd(), "binary_crossentropy", metrics=[keras.metrics.AUC(name="auc")])
    seen = []
    spy = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda _, logs: seen.append([float(logs[k]) for k in sorted(logs)])
    )
    data = batches(X[:37], np.eye(3, dtype="float32")[Y[:37]])
    found = trained(model, data, validation_data=data, callbacks=[spy])
    return {**found, "logs": np.array(seen)}


class WithComputeLoss(Custom):
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            prediction = self(x, training=True)
            loss = self.compute_loss(y=y, y_pred=prediction)
        weights = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss)
            else:
                metric.update_state(y, prediction)
        return {m.name: m.result() for m in self.metrics}


@row("`train_step` overridden, with `compute_loss`", keras2=False)
def train_step_overridden(scope):
    with scope():
        model = compiled(WithComputeLoss())
    return trained(model)


class WithOwnLoss(Custom):
    def __init__(self):
        super().__init__()
        self.tracker = keras.metrics.Mean(name="own")

    @property
    def metrics(self):
        return [self.tracker]

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            prediction = self(x, training=True)
            loss = keras.losses.sparse_categorical_crossentropy(y, prediction, from_logits=True)
        weights = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        self.tracker.update_state(loss)
        return {"own": self.tracker.result(), "last": tf.reduce_mean(loss)}


@row("`train_step` overridden, with a loss and a metric of its own")
def train_step_with_its_own_loss(scope):
    with scope():
        model = WithOwnLoss()
        model.compile(keras.optimizers.SGD(0.01))
    return trained(model)


def network(*widths):
    inner = [layers.Dense(width, activation="relu") for width in widths[1:-1]]
    return initialised(
        keras.Sequential([keras.Input((widths[0],)), *inner, layers.Dense(widths[-1])])
    )


class Adversaries(keras.Model):
    """The GAN of Keras's examples: no `call`, two optimizers, its own `compile`."""

    def __init__(self, generator, discriminator):
        super().__init__()
        self.generator, self.discriminator = generator, discriminator

    def compile(self, d_optimizer, g_optimizer, loss_fn):
        super().compile()
        self.d_optimizer, self.g_optimizer, self.loss_fn = d_optimizer, g_optimizer, loss_fn
        self.d_loss_tracker = keras.metrics.Mean(name="d_loss")
        self.g_loss_tracker = keras.metrics.Mean(name="g_loss")

    @property
    def metrics(self):
        return [self.d_loss_tracker, self.g_loss_tracker]

    def train_step(self, data):
        real, latent = data[:, :4], data[:, 4:]  # drawn, it would be of another size in each part
        size = tf.shape(real)[0]
        both = tf.concat([self.generator(latent), real], axis=0)
        labels = tf.concat([tf.ones((size, 1)), tf.zeros((size, 1))], axis=0)
        with tf.GradientTape() as tape:
            d_loss = self.loss_fn(labels, self.discriminator(both))
        weights = self.discriminator.trainable_weights
        grads = tape.gradient(d_loss, weights)
        self.d_optimizer.apply_gradients(zip(grads, weights, strict=True))
        with tf.GradientTape() as tape:
            fakes = self.discriminator(self.generator(latent))
            g_loss = self.loss_fn(tf.zeros((size, 1)), fakes)
        weights = self.generator.trainable_weights
        grads = tape.gradient(g_loss, weights)
        self.g_optimizer.apply_gradients(zip(grads, weights, strict=True))
        self.d_loss_tracker.update_state(d_loss)
        self.g_loss_tracker.update_state(g_loss)
        return {"d_loss": self.d_loss_tracker.result(), "g_loss": self.g_loss_tracker.result()}


@row("a GAN: no `call`, two optimizers, compiled outside the scope", keras2=False)
def adversaries(scope):
    with scope():
        model = Adversaries(network(4, 8, 4), network(4, 8, 1))
    model.compile(adam(), sgd(), keras.losses.BinaryCrossentropy(from_logits=True))
    history = model.fit(batches(X[:37]), epochs=2, verbose=0).history
    optimizers = model.d_optimizer, model.g_optimizer
    variables = [*model.trainable_variables, *(v for o in optimizers for v in o.variables)]
    values = {f"variable/{i}": v.numpy() for i, v in enumerate(variables)}
    return {**values, **{key: np.array(value) for key, value in history.items()}}


class Autoencoder(keras.Model):
    """The autoencoder of Keras's examples: no `call`, losses that it averages itself."""

    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = network(8, 4), network(4, 6, 8)
        self.tracker = keras.metrics.Mean(name="reconstruction_loss")

    def train_step(self, data):
        with tf.GradientTape() as tape:
            result = self.decoder(self.encoder(data))
            loss = tf.reduce_mean(keras.losses.mean_squared_error(data, result))
            part = loss / tf.distribute.get_strategy().num_replicas_in_sync
        grads = tape.gradient(part, self.trainable_weights)
        self.optimizer.apply_gradients(zip(grads, self.trainable_weights, strict=True))
        self.tracker.update_state(loss)
        return {"loss": self.tracker.result()}


@row("an autoencoder: no `call`, a mean of its own, divided by the replicas", keras2=False)
def autoencoder(scope):
    with scope():
        model = Autoencoder()
        model.compile(optimizer=adam())
    return trained(model, batches(X))


class ClipsTheSum(Custom):
    """Sums the gradients itself, and then clips them, as the warning for clipping a part says."""

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            prediction = self(x, training=True)
            loss = self.compute_loss(y=y, y_pred=prediction)
        grads = tape.gradient(loss, self.trainable_variables)
        context = tf.distribute.get_replica_context()
        grads, _ = tf.clip_by_global_norm(context.all_reduce("SUM", grads), 0.1)
        grads = [grad / context.num_replicas_in_sync for grad in grads]
        self.optimizer.apply(grads, self.trainable_variables)
        return {**self.compute_metrics(x, y, prediction), "loss": loss}


@row("`train_step` overridden, which clips the sum of the gradients", keras2=False)
def clips_the_sum(scope):
    with scope():
        model = compiled(ClipsTheSum())
    return trained(model)


class OfRows(keras.Model):
    """Learns from ragged or sparse rows alone: no dense array says how many samples there are."""

    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(1, kernel_initializer="ones")
        self.dense.build((None, 1))

    def train_step(self, rows):
        sparse = isinstance(rows, tf.SparseTensor)
        each = tf.sparse.reduce_sum(rows, axis=1) if sparse else tf.reduce_mean(rows, axis=1)
        each = tf.reshape(each, (-1, 1))
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(self.dense(each) - 2 * each)) / BATCH
        weights = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, weights), weights)
        return {"loss": loss, "mean": tf.reduce_mean(each)}


@row("batches of ragged or sparse tensors alone, the last one smaller", keras2=False)
def ragged_and_sparse(scope):
    values = np.random.default_rng(23)
    lengths = values.integers(1, 9, 37)
    ragged = tf.RaggedTensor.from_row_lengths(X.reshape(-1)[: lengths.sum()], lengths)
    sparse = tf.sparse.from_dense(X[:41] * (X[:41] > 0))  # TensorFlow divides no fewer of them
    found = {}
    for name, rows in {"ragged": ragged, "sparse": sparse}.items():
        with scope():
            model = OfRows()
            model.compile(sgd())
        for key, value in trained(model, batches(rows)).items():
            found[f"{name}/{key}"] = value
    return {key: value for key, value in found.items() if "/loss" not in key}


class Own(keras.metrics.Metric):
    """A metric as Keras's documentation shows them: its result is its variable."""

    def __init__(self, name, **options):
        super().__init__(name=name)
        self.state = self.add_weight(shape=(), initializer="zeros", name="state", **options)

    def update_state(self, y_true, y_pred, sample_weight=None):
        right = tf.argmax(y_pred, axis=-1) == tf.reshape(tf.cast(y_true, tf.int64), [-1])
        self.state.assign_add(tf.reduce_sum(tf.cast(right, self.state.dtype)))

    def result(self):
        return self.state


class AsKind(Own):
    """One whose result is of a given kind."""

    def __init__(self, name, kind):
        super().__init__(name)
        self.kind = kind

    def result(self):
        return self.kind(self.state)


KINDS = {
    "tensor": lambda v: v / 2,
    "whole": lambda v: keras.ops.cast(v, "int64"),
    "truth": lambda v: v > 20,
    "half": lambda v: keras.ops.cast(v, "float16"),
    "vector": lambda v: keras.ops.stack([v + 0, 2 * v]),
    "named": lambda v: {"one": v, "two": 2 * v},
    "python": lambda _: 2,
    "numpy": lambda _: np.float64(0.25),
    "yes": lambda _: True,
    "text": lambda _: "words",
    "none": lambda _: None,
}


def kinds():
    return [
        Own("plain"),
        Own("int", dtype="int32"),
        *(AsKind(name, kind) for name, kind in KINDS.items()),
    ]


def told(logs):
    """Return logs as text, rounded, because they are of any kind."""

    def rounded(value):
        return np.round(value, 4) + 0.0 if getattr(value, "dtype", None) == "float32" else value

    return repr({k: round(v, 4) if isinstance(v, float) else rounded(v) for k, v in logs.items()})


class Logs(keras.callbacks.Callback):
    """Notes what callbacks get, and adds to it what callbacks add."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def on_train_batch_end(self, batch, logs=None):
        self.seen.append(told(logs))

    def on_test_batch_end(self, batch, logs=None):
        self.seen.append(told(logs))

    def on_epoch_end(self, epoch, logs=None):
        self.seen.append(told(logs))
        logs["rate"] = self.model.optimizer.learning_rate
        logs.update(words="words", flag=True, nest={"a": {"b": 1}}, nothing=None)


def followed(model, data=None, *, validated=True):
    """Fit and evaluate, and return all that anyone is told."""
    logs, data = Logs(), batches(X[:41], Y[:41]) if data is None else data
    validation = data if validated else None
    history = model.fit(
        data, validation_data=validation, epochs=2, callbacks=[logs], verbose=0
    ).history
    history["rate"] = [float(each) for each in history["rate"]]
    evaluated = model.evaluate(data, verbose=0, return_dict=True)
    return {
        "seen": np.array(logs.seen),
        "history": np.array([told({key: each}) for key, v in history.items() for each in v]),
        # Keras 3.13 gives tensors, and an average of integers is none; later ones give numbers.
        "evaluated": np.array(told(pythonify_logs(evaluated))),
    }


@row("metrics of your own: a result of any kind", keras2=False)
def results_of_any_kind(scope):
    with scope():
        model = compiled(dense(), metrics=kinds())
    # One process reads a variable that is a result after the validation only.
    return followed(model, validated=False)


class Logging(Custom):
    """Returns logs of any kind that no metric has."""

    def train_step(self, data):
        return {**super().train_step(data), **self.more(data)}

    def test_step(self, data):
        return {**super().test_step(data), **self.more(data)}

    def more(self, data):
        return {
            "python": 2,
            "float": 0.25,
            "yes": True,
            "numpy": np.int32(3),
            "array": np.array([1.5, 2.5]),
            "text": "words",
            "none": None,
            "variable": self.inner.layers[-1].bias,
            "steps": tf.convert_to_tensor(self.optimizer.iterations),
            "means": tf.reduce_mean(data[0], axis=0)[:2],
            "truth": tf.greater(1, 0),
            "samples": data[1],
            "words": tf.strings.as_string(data[1]),
            "nest": {"inner": tf.reduce_mean(data[0]), "text": "words", "deep": {"one": 1}},
        }


@row("logs of any kind, from `train_step`, `test_step` and callbacks", keras2=False)
def logs_of_any_kind(scope):
    with scope():
        model = compiled(Logging(), steps_per_execution=3)
    return followed(model)


class Read(Own):
    """Reads its variable itself, without which Keras cannot run eagerly."""

    def result(self):
        return tf.convert_to_tensor(self.state)


class Largest(Read):
    def update_state(self, y_true, y_pred, sample_weight=None):
        self.state.assign(keras.ops.maximum(self.state, keras.ops.max(y_pred)))


class Smallest(Read):
    def reset_state(self):
        self.state.assign(1e9)

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.state.assign(keras.ops.minimum(self.state, keras.ops.min(y_pred)))


class Counted(Read):
    """Counts batches."""

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.state.assign_add(1.0)


class Declared(keras.metrics.Metric):
    """Keeps a mean of a batch in a variable of any aggregation."""

    def __init__(self, aggregation):
        super().__init__(name=f"last_{aggregation}")
        self.state = self.add_variable((), "zeros", aggregation=aggregation, name="state")

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.state.assign(tf.reduce_mean(y_pred))

    def result(self):
        return tf.convert_to_tensor(self.state)


class Raw(keras.metrics.Metric):
    """Keeps sums in TensorFlow's variables, as metrics for Keras 2 may."""

    def __init__(self, name, **options):
        super().__init__(name=name)
        self.total = tf.Variable(0.0, trainable=False, **options)

    def reset_state(self):
        self.total.assign(0.0)

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.total.assign_add(tf.reduce_max(y_pred))

    def result(self):
        return tf.convert_to_tensor(self.total)


class Both(keras.metrics.Metric):
    """Made of metrics of Keras, as an F1 score is."""

    def __init__(self):
        super().__init__(name="both")
        self.precision, self.recall = keras.metrics.Precision(), keras.metrics.Recall()

    def update_state(self, y_true, y_pred, sample_weight=None):
        y_true = tf.one_hot(tf.reshape(tf.cast(y_true, tf.int32), [-1]), CLASSES)
        self.precision.update_state(y_true, tf.nn.softmax(y_pred))
        self.recall.update_state(y_true, tf.nn.softmax(y_pred))

    def reset_state(self):
        self.precision.reset_state()
        self.recall.reset_state()

    def result(self):
        precision, recall = self.precision.result(), self.recall.result()
        return 2 * precision * recall / (precision + recall + 1e-7)


def spread(y_true, y_pred):
    """A metric function that mixes the samples of a batch."""
    return tf.math.reduce_std(y_pred) + tf.reduce_max(tf.cast(y_true, tf.float32))


def unsummable():
    on_read = {
        "synchronization": tf.VariableSynchronization.ON_READ,
        "aggregation": tf.VariableAggregation.SUM,
    }
    return [
        *(cls(cls.__name__.lower()) for cls in (Read, Largest, Smallest, Counted)),
        *(Declared(kind) for kind in ("none", "mean", "sum", "only_first_replica")),
        Raw("raw"),
        Raw("raw_sum", **on_read),
        Both(),
        spread,
    ]


class Steps(Custom):
    """Updates metrics in a step of its own."""

    def __init__(self):
        super().__init__()
        self.largest, self.worst = Largest("largest"), Largest("worst")

    def train_step(self, data):
        x, y = data
        loss = self.compute_loss(x, y, self(x))
        self.largest.update_state(y, self(x))
        self.worst.update_state(None, loss)
        trackers = {"largest": self.largest.result(), "worst": self.worst.result()}
        return {**super().train_step(data), **trackers}


@row(
    "metrics of your own that are not sums: a maximum, counted batches, `tf.Variable`s",
    keras2=False,
)
def metrics_that_are_not_sums(scope):
    found = {}
    tried = {
        "static": (batches(X, Y, drop_remainder=True), {}),
        "executions": (batches(X[:41], Y[:41]), {"steps_per_execution": 3}),
        "eager": (batches(X[: BATCH + 1], Y[: BATCH + 1]), {"run_eagerly": True}),
    }
    for name, (data, options) in tried.items():
        with scope():
            model = compiled(dense(), metrics=unsummable(), **options)
        # Eagerly, each collective of a step is a graph; `evaluate` tests as the validation does.
        made = followed(model, data, validated=name != "eager")
        found.update({f"{name}/{k}": v for k, v in made.items()})
    with scope():
        model = compiled(Steps())
    return {**found, **{f"steps/{key}": value for key, value in followed(model).items()}}


class Words(keras.Model):
    """Predicts values of every type, of which some samples have none."""

    def __init__(self):
        super().__init__()
        words = ["a", "b\u00e9", "", "dddd"]
        self.look = layers.StringLookup(vocabulary=words, invert=True, oov_token="?")

    def call(self, x):
        number = tf.cast(x[:, 0], tf.int32)
        word, real = self.look(number), tf.cast(number, tf.float32)
        several = tf.repeat(number, number)
        return {
            "word": word,
            "words": tf.stack([word, word + "x"], axis=1),
            "truth": number > 1,
            "none": tf.zeros([tf.shape(x)[0], 0], tf.string),
            "sparse": tf.sparse.from_dense(x),
            "ragged": tf.RaggedTensor.from_row_lengths(several, number),
            "ragged_words": tf.RaggedTensor.from_row_lengths(tf.strings.as_string(several), number),
            "complex": tf.complex(real, 1.0),
            **{t: tf.cast(x, t) for t in ("int8", "uint64", "float16", "bfloat16", "float64")},
        }


def dense_of(value):
    if isinstance(value, tf.SparseTensor):
        value = tf.sparse.to_dense(value)
    return value.to_list() if isinstance(value, tf.RaggedTensor) else np.asarray(value).tolist()


@row("`predict` of strings, booleans, integers, ragged and sparse values", keras2=False)
def predictions_of_any_type(scope):
    numbers, found = np.arange(1, 2 * BATCH + 2)[:, None] % 4, {}
    numbers[:BATCH] = 0  # and a batch without any
    # Each further shape of a batch is one more graph, and eagerly each collective is one: what is
    # left for the second execution is what one step alone would make of the last sample.
    for executions, eagerly, chosen in (
        (1, False, numbers[:-1]),
        (2, False, numbers),
        (1, True, numbers[BATCH:]),
    ):
        with scope():
            model = Words()
            model.compile(steps_per_execution=executions, run_eagerly=eagerly)
        result = model.predict(batches(chosen), verbose=0)
        for key, value in result.items():
            kind = getattr(value.dtype, "name", value.dtype)
            found[f"{executions}/{eagerly}/{key}"] = f"{kind} {dense_of(value)}"
    return found


def looped(strategy, model, optimizer):
    """Train in a loop of the user's own, and return the losses and the weights."""
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function
    def step(x, y):
        def replica(x, y):
            with tf.GradientTape() as tape:
                loss = loss_of(y, model(x, training=True))
            grads = tape.gradient(loss, model.trainable_variables)
            optimizer.apply(grads, model.trainable_variables)
            return loss

        return strategy.reduce("SUM", strategy.run(replica, args=(x, y)), axis=None)

    data = strategy.experimental_distribute_dataset(batches(X, Y))
    losses = [float(step(x, y)) for _ in range(2) for x, y in data]
    weights = {f"trainable/{i}": w for i, w in enumerate(model.get_weights())}
    return {"losses": np.array(losses), **weights}


@row("custom training loop", keras2=False)
def custom_loop(scope):
    with scope():
        strategy = tf.distribute.get_strategy()
        model, optimizer = dense(), adam()
        optimizer.build(model.trainable_variables)
    return looped(strategy, model, optimizer)


@row("custom training loop whose first step builds the model and the optimizer", keras2=False)
def loop_that_builds(scope):
    with scope():
        strategy = tf.distribute.get_strategy()
        given = keras.initializers.GlorotUniform(seed=5)
        model = keras.Sequential([layers.Dense(n, kernel_initializer=given) for n in (16, CLASSES)])
        optimizer = adam()
    return looped(strategy, model, optimizer)


@row("`BatchNormalization`: statistics equal on all workers", single=False)
def batch_norm(scope):
    with scope():
        model = compiled(dense(layers.BatchNormalization()))
    return trained(model)


@row("`BatchNormalization(synchronized=True)`")
def synchronized_batch_norm(scope):
    with scope():
        model = compiled(dense(layers.BatchNormalization(synchronized=True)))
    return trained(model, batches(X[:37], Y[:37]))


class Remembers(layers.Layer):
    """Keeps the last inputs in a queue, and their mean."""

    def build(self, shape):
        def state(name, shape, **options):
            return self.add_weight(
                name=name, shape=shape, initializer="zeros", trainable=False, **options
            )

        self.queue = state("queue", (24, *shape[1:]))
        self.named = state("named", (24, *shape[1:]), aggregation="only_first_replica")
        self.mean = state("mean", shape[1:], aggregation="mean")
        self.count = state("count", (), aggregation="sum")
        self.left = state("left", (), dtype="int64", aggregation="sum")

    def call(self, x, training=False):
        if training:
            queue, named = tf.convert_to_tensor(self.queue), tf.convert_to_tensor(self.named)
            self.queue.assign(tf.concat([x, queue], axis=0)[:24])
            self.named.assign(tf.concat([x, named], axis=0)[:24])
            mean = tf.convert_to_tensor(self.mean)
            self.mean.assign(0.9 * mean + 0.1 * tf.reduce_mean(x, axis=0))
            self.count.assign_add(tf.cast(tf.shape(x)[0], "float32"))
            self.left.assign_sub(tf.shape(x, out_type="int64")[0])
        return x


@row(
    "state of your own layers, with and without `aggregation`",
    keras2=False,
)
def state_of_own_layers(scope):
    with scope():
        remembers = Remembers()
        model = compiled(keras.Sequential([keras.Input((8,)), remembers, dense()]))
    model.fit(batches(X, Y), epochs=2, verbose=0)
    samples = {x.tobytes() for x in X}
    kept = [
        sum(x.tobytes() in samples for x in queue.numpy())
        for queue in (remembers.queue, remembers.named)
    ]
    names = "mean", "count", "left"
    values = {name: getattr(remembers, name).numpy() for name in names}
    return {"kept": np.array(kept), **values}


@row("`Dropout`: seed state equal on all workers", single=False, keras2=False)
def dropout(scope):
    with scope():
        model = compiled(dense(layers.Dropout(0.5, seed=3)))
    return trained(model)


@row("weight and activity regularizers")
def regularizers(scope):
    l2 = keras.regularizers.L2(0.01)
    with scope():
        model = compiled(dense(kernel_regularizer=l2, activity_regularizer=l2))
    return trained(model)


@row("mixed precision, with an overflow on one worker", tolerance=4e-4)
def mixed_precision(scope):
    x = X.copy()
    x[BATCH - 1] = 6e4  # in the last worker's share of the first batch
    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        with scope():
            model = dense(layers.Dense(16))
            model.add(layers.Activation("linear", dtype="float32"))
            compiled(model, keras.optimizers.SGD(0.1))
        found = trained(model, batches(x, Y))
    finally:
        keras.mixed_precision.set_global_policy("float32")
    return {key: value for key, value in found.items() if "history" not in key}


@row("gradient clipping: `global_clipnorm`")
def clip_global_norm(scope):
    with scope():
        model = compiled(dense(), sgd(global_clipnorm=0.1))
    return trained(model)


@row("gradient clipping: `clipnorm`")
def clip_norm(scope):
    with scope():
        model = compiled(dense(), keras.optimizers.SGD(0.1, clipnorm=0.05))
    return trained(model)


@row("gradient clipping: `clipvalue`")
def clip_value(scope):
    with scope():
        model = compiled(dense(), keras.optimizers.SGD(0.1, clipvalue=0.01))
    return trained(model)


@row("`gradient_accumulation_steps`", keras2=False)
def gradient_accumulation(scope):
    with scope():
        optimizer = adam(gradient_accumulation_steps=3, global_clipnorm=0.1)
        model = compiled(dense(), optimizer)
    return trained(model)  # 8 steps: the last accumulation is half done


@row("`use_ema`, `ema_overwrite_frequency`", keras2=False)
def ema(scope):
    with scope():
        model = compiled(dense(), adam(use_ema=True, ema_momentum=0.9, ema_overwrite_frequency=3))
    return trained(model)


@row("`SwapEMAWeights`", keras2=False)
def swap_ema_weights(scope):
    with scope():
        model = compiled(dense(), adam(use_ema=True, ema_momentum=0.9))
    swap = keras.callbacks.SwapEMAWeights(swap_on_epoch=True)
    return trained(model, validation_data=batches(X[:24], Y[:24]), callbacks=[swap])


@row("`weight_decay`")
def weight_decay(scope):
    with scope():
        model = compiled(dense(), keras.optimizers.AdamW(0.01, weight_decay=0.1))
    return trained(model)


@row("`ScheduleFreeAdamW` (built before `fit`), `Muon`, `MultiOptimizer`", keras2=False)
def other_optimizers(scope):
    choice = keras.optimizers
    found = {}
    for name in ("ScheduleFreeAdamW", "Muon", "MultiOptimizer"):
        if not hasattr(choice, name):  # Keras 3.13 has one of the three
            continue
        with scope():
            model = dense()
        if name == "MultiOptimizer":
            optimizer = choice.MultiOptimizer(choice.OptimizerMap(adam(), {".*bias": sgd()}))
        else:
            optimizer = getattr(choice, name)(0.01)
        compiled(model, optimizer)
        if name == "ScheduleFreeAdamW":  # what `build` assigns is lost where a step calls it
            with scope():
                optimizer.build(model.trainable_variables)
        for key, value in trained(model, epochs=1).items():
            found[f"{name}/{key}"] = value
    return found


@row("`run_eagerly=True`")
def run_eagerly(scope):
    with scope():
        model = compiled(dense(), run_eagerly=True)
    return trained(model, epochs=1)


@row("`run_eagerly=True`, last batch smaller", keras2=False)
def uneven_eagerly(scope):
    found = {}
    for size in (15, 13):
        with scope():
            extra = layers.BatchNormalization(synchronized=True)
            model = compiled(dense(extra, AddsLoss()), run_eagerly=True)
        for key, value in trained(model, batches(X[:size], Y[:size]), epochs=1).items():
            found[f"{size}/{key}"] = value
    return found


@row("NumPy arrays, shuffled with a seed", keras2=False)
def numpy_input(scope):
    with scope():
        model = compiled(dense())
    found = trained(model, X, y=Y, batch_size=BATCH)
    return {**found, "predict": model.predict(X, batch_size=BATCH, verbose=0)}


@row("`train_on_batch`, `test_on_batch`, `predict_on_batch`")
def on_batch(scope):
    with scope():
        model = compiled(dense(), adam())
    logs = [model.train_on_batch(X[i : i + BATCH], Y[i : i + BATCH]) for i in range(0, SIZE, BATCH)]
    logs.append(model.test_on_batch(X[:BATCH], Y[:BATCH]))
    predicted = model.predict_on_batch(X[:BATCH])
    return {"logs": np.array(logs), "predict": predicted, **state(model)}


@row("`train_on_batch`, batches of other sizes on other workers", keras2=False)
def on_uneven_batch(scope):
    with scope():
        workers = tf.distribute.get_strategy().num_replicas_in_sync
        model = compiled(dense(), adam())

    def own(array, start, size):
        return np.array_split(array[start : start + size], workers)[TASK]

    sizes = [(0, 12), (12, 12), (24, 11), (35, 12)]
    logs = [model.train_on_batch(own(X, *part), own(Y, *part)) for part in sizes]
    logs.append(model.test_on_batch(own(X, 0, 11), own(Y, 0, 11)))
    return {"logs": np.array(logs), **state(model)}


def endless(x, y):
    while True:
        for i in range(0, SIZE, BATCH):
            yield x[i : i + BATCH], y[i : i + BATCH]


@row("generators")
def generator(scope):
    with scope():
        model = compiled(dense())
    found = trained(model, endless(X, Y), steps_per_epoch=4)
    found["evaluate"] = np.array(model.evaluate(endless(X, Y), steps=4, verbose=0))
    return {**found, "predict": model.predict(endless(X, Y), steps=4, verbose=0)}


def aligned(array):
    """Copy to where TensorFlow uses an array's own memory."""
    memory = np.empty(array.nbytes + 64, np.uint8)
    copy = memory[-memory.ctypes.data % 64 :][: array.nbytes].view(array.dtype)
    copy = copy.reshape(array.shape)
    copy[...] = array
    return copy


@row("generators and `PyDataset`: the user's arrays stay as they are", keras2=False)
def arrays_stay(scope):
    x = aligned(X)
    with scope():
        model = compiled(keras.Sequential([keras.Input((8,)), layers.Rescaling(0.5), dense()]))

    shapes = (tf.TensorSpec((None, 8), tf.float32), tf.TensorSpec((None,), tf.int64))
    own = tf.data.Dataset.from_generator(lambda: endless(x, Y), output_signature=shapes)
    trained(model, endless(x, Y), steps_per_epoch=4)
    trained(model, own, epochs=1, steps_per_epoch=4)
    found = trained(model, Batches(x, Y), shuffle=False)
    return {**found, "changed": np.count_nonzero(x != X)}


class Batches(keras.utils.Sequence if KERAS2 else keras.utils.PyDataset):
    def __init__(self, x, y, **options):
        super().__init__(**options)
        self.x, self.y = x, y

    def __len__(self):
        return SIZE // BATCH

    def __getitem__(self, i):
        return self.x[i * BATCH :][:BATCH], self.y[i * BATCH :][:BATCH]


@row("`PyDataset`")
def py_dataset(scope):
    with scope():
        model = compiled(dense())
    found = trained(model, Batches(X, Y), shuffle=False)
    found["evaluate"] = np.array(model.evaluate(Batches(X, Y), verbose=0))
    return {**found, "predict": model.predict(Batches(X, Y), verbose=0)}


@row("shuffling without a seed: each sample once in an epoch", keras2=False)
def shuffled_without_a_seed(scope):
    context.set_global_seed(None)
    random.seed()
    number = (np.arange(SIZE) / SIZE).astype("float32")[:, None]

    def mean(y, _):
        return y

    def square(y, _):
        return tf.square(y)

    with scope():
        model = compiled(dense(), keras.optimizers.SGD(0.0), [mean, square], loss="mse")
    arrays = trained(model, X, y=number, batch_size=BATCH)
    sequence = trained(model, Batches(X, number))
    loaded = trained(model, Batches(X, number, workers=2)) if several() else sequence
    return {
        f"{name}/{key}": found[f"history/{key}"]
        for name, found in {"arrays": arrays, "sequence": sequence, "loaded": loaded}.items()
        for key in ("mean", "square")
    }


@row("`predict` on a dataset that reads files")
def predict_from_files(scope):
    names = [str(DIRECTORY / f"samples-{TASK}-{i}") for i in range(4)]
    for part, name in zip(np.split(X, 4), names, strict=True):
        with tf.io.TFRecordWriter(name) as writer:
            for sample in part:
                writer.write(sample.tobytes())
    with scope():
        model = dense()
    data = tf.data.TFRecordDataset(names).map(lambda s: tf.io.decode_raw(s, tf.float32)).batch(8)
    return {"predict": model.predict(data.map(lambda x: tf.ensure_shape(x, (None, 8))), verbose=0)}


@row("optimizer, metrics and `compile` outside the scope", keras2=False)
def compiled_outside_the_scope(scope):
    with scope():
        model = dense()
    compiled(model, sgd(), [keras.metrics.SparseCategoricalAccuracy()])
    found = trained(model, batches(X[:41], Y[:41]))
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return {**found, **{f"string/{key}": value for key, value in trained(model).items()}}


@row("an adapted and a frozen layer from outside the scope", keras2=False)
def layers_from_outside_the_scope(scope):
    normal = layers.Normalization()
    normal.adapt(X)
    frozen = initialised(keras.Sequential([keras.Input((8,)), layers.Dense(6)]))
    frozen.trainable = False
    with scope():
        model = keras.Sequential([keras.Input((8,)), normal, frozen, layers.Dense(CLASSES)])
        compiled(initialised(model))
    normal.adapt(X)  # `initialised` has set its kernel-like statistics
    return trained(model)


@row("`model.save`, `save_weights`, `export` to one path from all workers", keras2=False)
def saved_to_one_path(scope):
    with scope():
        model = compiled(dense(layers.BatchNormalization(synchronized=True)))
    trained(model, epochs=1)
    (DIRECTORY / "saved").mkdir(exist_ok=True)
    found = {}
    for name in ("model.keras", "model.weights.h5", "model.h5", "model"):
        path = DIRECTORY / "saved" / name
        for _ in range(2):
            if name == "model":
                model.export(str(path), verbose=False)
            elif "weights" in name:
                model.save_weights(path)
            else:
                model.save(path)
        model.evaluate(batches(X, Y), verbose=0)  # so all have written
        found[f"{name}/same"] = np.allclose(reloaded(path, model), model(X), atol=1e-5)
    return found


def reloaded(path, model):
    if path.name == "model":
        loaded = tf.saved_model.load(str(path))
        return loaded.serve(X)
    if "weights" in path.name:
        fresh = dense(layers.BatchNormalization(synchronized=True))
        fresh.load_weights(path)
        return fresh(X)
    return keras.models.load_model(path)(X)


@row("`ModelCheckpoint`, `CSVLogger`, `RemoteMonitor`: the chief writes", keras2=False)
def callbacks_that_write(scope):
    directory = DIRECTORY / "callbacks"
    directory.mkdir(exist_ok=True)
    callbacks = keras.callbacks

    def post(url, json, **_):
        with (directory / f"posted-by-{TASK}").open("a") as posted:
            print(json["epoch"], file=posted)

    sys.modules[callbacks.RemoteMonitor.__module__].requests = SimpleNamespace(post=post)
    with scope():
        model = compiled(dense())
    return trained(
        model,
        epochs=3,
        callbacks=[
            callbacks.ModelCheckpoint(directory / "at-{epoch}.keras"),
            callbacks.ModelCheckpoint(
                directory / "best.weights.h5",
                save_weights_only=True,
                save_best_only=True,
                monitor="loss",
                save_freq=5,
            ),
            callbacks.CSVLogger(directory / "log.csv"),
            callbacks.RemoteMonitor(send_as_json=True),
            callbacks.ReduceLROnPlateau(monitor="loss", patience=0, min_delta=10),
        ],
    )


@row("`TensorBoard`: the chief writes", keras2=False)
def tensorboard(scope):
    with scope():
        model = compiled(dense())
    board = keras.callbacks.TensorBoard(DIRECTORY / "tensorboard", histogram_freq=1, update_freq=2)
    return trained(model, validation_data=batches(X[:24], Y[:24]), callbacks=[board])


class Fails(keras.callbacks.Callback):
    """Notes the batches that are trained on, and fails before one of them."""

    def __init__(self, epoch=None, batch=None):
        super().__init__()
        self.at, self.epoch, self.batches = (epoch, batch), None, []

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_begin(self, batch, logs=None):
        if (self.epoch, batch) == self.at:
            raise KeyboardInterrupt
        self.batches.append((self.epoch, batch))


@row("`BackupAndRestore` in one shared directory, every epoch", keras2=False)
def backup_every_epoch(scope):
    seen = []
    note = keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, _: seen.append(epoch))
    for fault in [(2, 3), ()]:
        with scope():
            model = compiled(
                dense(layers.Dropout(0.0), layers.BatchNormalization(synchronized=True))
            )
        backup = keras.callbacks.BackupAndRestore(DIRECTORY / "backup")
        with contextlib.suppress(KeyboardInterrupt):
            found = trained(model, epochs=4, callbacks=[backup, note, Fails(*fault)])
        # Only on the chief, which removes the whole directory when training ends well.
        for point in (DIRECTORY / "backup").glob("point-*") if TASK == 0 else ():
            point.unlink(missing_ok=True)  # Keras itself writes none
    return {**found, "epochs": np.array(seen)}


def resumed(build, data, at, *faults, save_freq=3, epochs=2, **options):
    """Train until the last fault is over, and return what came after the backup of a batch."""
    for fault in [*faults, ()] if several() else [()]:
        fails = Fails(*fault)
        callbacks = [fails]
        if several():
            directory = DIRECTORY / f"backup-{TASK}"
            callbacks.append(keras.callbacks.BackupAndRestore(directory, save_freq=save_freq))
            for metadata in directory.glob("*.json"):
                metadata.write_text('{"epoch":')  # as a fault leaves it that comes in mid-write
        with contextlib.suppress(KeyboardInterrupt):
            found = trained(build(), *data(), epochs=epochs, callbacks=callbacks, **options)
    seen = fails.batches
    if not several():
        seen = [batch for batch in seen if batch > at]
        found = {k: v[at[0] :] if "history" in k else v for k, v in found.items()}
    return {**found, "batches": np.array(seen)}


@row("`BackupAndRestore`, every few steps, the directory not shared", keras2=False)
def backup_every_few_steps(scope):
    def build():
        with scope():
            extra = layers.BatchNormalization(synchronized=True), layers.Dropout(1e-9, seed=3)
            return compiled(dense(*extra), adam())

    def shuffled():
        samples = tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(SIZE, seed=5)
        return [samples.batch(BATCH)]

    # The second fault goes back to the last batch of the epoch that the first has interrupted.
    options = {"save_freq": 2, "epochs": 3, "validation_data": batches(X[:24], Y[:24])}
    return resumed(build, shuffled, (1, 3), (1, 2), (2, 0), **options)


@row("`BackupAndRestore` in mid-epoch: a generator, shuffling without a seed", keras2=False)
def backup_in_mid_epoch(scope):
    def square(y, _):
        return tf.square(y)

    def build(rate, **options):
        with scope():
            return compiled(dense(), keras.optimizers.SGD(rate), **options)

    def executions():
        return build(0.1, steps_per_execution=2)

    def still():
        return build(0.0, loss="mse", metrics=[square])

    options = {"save_freq": 2, "steps_per_epoch": 6}
    generator = resumed(executions, lambda: [endless(X, Y)], (1, 3), (1, 4), **options)
    context.set_global_seed(None)
    number = (np.arange(SIZE) / SIZE).astype("float32")[:, None]
    arrays = resumed(still, lambda: [X], (1, 1), (1, 3), y=number, batch_size=BATCH)
    each_once = {key: arrays[key] for key in ("history/square", "batches")}
    return {**generator, **{f"arrays/{key}": value for key, value in each_once.items()}}


@row("`jit_compile=True` (runs without XLA)")
def jit_compile(scope):
    with scope():
        model = compiled(dense(), jit_compile=True)
    return trained(model, epochs=1)


@row("refused: a layer built outside the scope", single=False, keras2=False)
def layer_built_outside_the_scope(scope):
    outside = keras.Sequential([keras.Input((8,)), layers.Dense(4)])
    with scope():
        model = compiled(keras.Sequential([outside, layers.Dense(CLASSES)]))
    return trained(model)


DIRECTORY, TASK = Path(), 0


def use_devices(count):
    """Give a worker several devices: TensorFlow's strategy itself uses one processor only."""

    def devices(_strategy, _resolver, worker):
        return tuple(f"{worker}/device:CPU:{i}" for i in range(count)), "CPU"

    [processor] = tf.config.list_physical_devices("CPU")
    parts = [tf.config.LogicalDeviceConfiguration() for _ in range(count)]
    tf.config.set_logical_device_configuration(processor, parts)
    CollectiveAllReduceExtended._initialize_local_devices = devices


def main(directory, *names):
    global DIRECTORY, TASK  # noqa: PLW0603 - what rows ask for
    multi = "TF_CONFIG" in os.environ
    if multi and (devices := int(os.environ.get("ROWS_DEVICES", "1"))) > 1:
        use_devices(devices)
    configure_heartbeat(60.0, context)  # a task that waits for a busy machine is not dead
    strategy = (
        tf.distribute.MultiWorkerMirroredStrategy() if multi else tf.distribute.get_strategy()
    )
    DIRECTORY = Path(directory)
    TASK = json.loads(os.environ["TF_CONFIG"])["task"]["index"] if multi else 0
    for name in names or ROWS:
        gc.freeze()  # `clear_session` collects garbage: not in TensorFlow, nor in earlier rows
        print(f"row {name} at {time.process_time():.1f} s of {time.monotonic():.1f}", flush=True)
        keras.utils.set_random_seed(7)
        try:
            result = ROWS[name].run(strategy.scope)
        except Exception as error:  # noqa: BLE001 - what a row raises is its result
            traceback.print_exc()
            result = {"error": f"{type(error).__name__}: {error}"}
        draft = DIRECTORY / f"{TASK}-draft.npz"
        np.savez(draft, **result)
        draft.rename(DIRECTORY / f"{TASK}-{name}.npz")
        if "error" in result:
            os._exit(1)
        keras.backend.clear_session()
    print(f"end at {time.process_time():.1f} s of {time.monotonic():.1f}", flush=True)
    os._exit(0)  # what is in memory is of no use to anybody


if __name__ == "__main__":
    main(*sys.argv[1:])
