"""Trainings in which features meet; run as keras_rows.py is.

python keras_pair_rows.py DIRECTORY ROW...
"""

import sys
from functools import partial

import keras_rows
import numpy as np
import tensorflow as tf
from keras_pairs import CASES
from keras_rows import BATCH, CLASSES, SIZE, Row, X, Y, initialised, keras, layers, state

STEPS = 4
RNG = np.random.default_rng(30)
LONG = RNG.normal(size=(SIZE, STEPS, 8)).astype("float32")
LONG[::3, 2:] = LONG[1::3, 3:] = 0  # masked
LONG_Y = RNG.integers(0, CLASSES, (SIZE, STEPS))
WEIGHTS = RNG.uniform(0.2, 2, SIZE).astype("float32")
CLASS_WEIGHTS = {0: 0.5, 1: 1.0, 2: 3.0}
BATCHES = {
    "even": [BATCH, BATCH],
    "uneven": [BATCH, BATCH, 7],
    "empty": [BATCH, 1],
    "single": [2, 2, 2, 2],
}
REDUCTIONS = {"mean": "sum_over_batch_size", "added": "sum_over_batch_size", "sum": "sum"}
UPDATES = {
    "plain": {"momentum": 0.9},
    "accumulated": {"momentum": 0.9, "gradient_accumulation_steps": 2},
    "averaged": {"use_ema": True, "ema_momentum": 0.8, "ema_overwrite_frequency": 2},
    "clipped": {"global_clipnorm": 0.05},
    "mixed": {},
}


class Penalty(layers.Layer):
    """A layer that adds a mean over its samples to the loss."""

    def call(self, x):
        self.add_loss(0.1 * keras.ops.mean(keras.ops.square(keras.ops.cast(x, "float32"))))
        return x


class WithOwnLoss(keras.Sequential):
    """A model that sums its samples' losses itself."""

    def train_step(self, data):
        x, y, weight = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            made = self(x, training=True)
            each = keras.losses.sparse_categorical_crossentropy(y, made, from_logits=True)
            if weight is not None:
                each *= weight
            if (mask := getattr(made, "_keras_mask", None)) is not None:
                each *= tf.cast(mask, each.dtype)
            loss = self.optimizer.scale_loss(tf.reduce_sum(each) / BATCH)
        weights = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, weights), weights)
        return self.compute_metrics(x, y, made, weight)


def made(case):
    cls = WithOwnLoss if case.loss == "own" else keras.Sequential
    masked = case.weight == "mask"
    first = [keras.Input((STEPS, 8)), layers.Masking()] if masked else [keras.Input((8,))]
    added = [Penalty()] if case.loss == "added" else []
    last = [layers.Dense(CLASSES), layers.Activation("linear", dtype="float32")]
    return initialised(cls([*first, layers.Dense(16, activation="relu"), *added, *last]))


def optimizer(case):
    inner = keras.optimizers.SGD(0.05, **UPDATES[case.update])
    if case.update != "mixed":
        return inner
    # With Keras's first scale, whether float16 overflows depends on a worker's share.
    return keras.optimizers.LossScaleOptimizer(inner, initial_scale=256.0)


def compiled(case):
    model = made(case)
    model.compile(
        optimizer(case),
        keras.losses.SparseCategoricalCrossentropy(
            from_logits=True, reduction=REDUCTIONS.get(case.loss)
        ),
        metrics=["accuracy"],
        weighted_metrics=["sparse_categorical_crossentropy"],
        run_eagerly=case.run == "eager",
        steps_per_execution=2 if case.run == "several" else 1,
    )
    return model


def data(case):
    size = sum(BATCHES[case.share])
    x, y = (LONG, LONG_Y) if case.weight == "mask" else (X, Y)
    arrays = [x, y, WEIGHTS] if case.weight == "sample" else [x, y]
    return [array[:size] for array in arrays]


def fitted(case, model, options):
    batches = tf.data.Dataset.from_tensor_slices(tuple(data(case))).batch(BATCHES[case.share][0])
    history = model.fit(batches, epochs=2, verbose=0, **options).history
    return {f"history/{key}": np.array(values) for key, values in history.items()}


def on_batches(case, model, options):
    """Train on each batch, of which a worker passes its own share."""
    workers, ends = (
        tf.distribute.get_strategy().num_replicas_in_sync,
        np.cumsum(BATCHES[case.share]),
    )
    whole = zip(*(np.split(array, ends[:-1]) for array in data(case)), strict=True)
    logs = []
    for batch in whole:
        own = [np.array_split(part, workers)[keras_rows.TASK] for part in batch]
        logs.append(model.train_on_batch(*own, return_dict=True, **options))
    return {f"log/{key}": np.array([log[key] for log in logs]) for key in logs[0]}


def trained(case, scope):
    policy = "mixed_float16" if case.update == "mixed" else "float32"
    keras.mixed_precision.set_global_policy(policy)
    try:
        with scope():
            model = compiled(case)
            how = on_batches if case.run == "batch" else fitted
            options = {"class_weight": CLASS_WEIGHTS} if case.weight == "class" else {}
            return {**how(case, model, options), **state(model)}
    finally:
        keras.mixed_precision.set_global_policy("float32")


keras_rows.ROWS = {
    case.name: Row(partial(trained, case), case.name, tolerance=case.tolerance) for case in CASES
}

if __name__ == "__main__":
    keras_rows.main(*sys.argv[1:])
