"""The programs of keras.io that people copy, rewritten and small; run as keras_rows.py is.

    python keras_program_rows.py DIRECTORY ROW...

Where a program draws random numbers, or looks at its whole batch, workers reach numbers of their
own, which must then be the same on all of them.
"""

import sys

import keras_rows
import numpy as np
import tensorflow as tf
from keras_rows import BATCH, batches, keras, layers, row, state
from keras_rows import ROWS as OTHERS

OTHERS.clear()
ops = keras.ops
SIZE = 48
RNG = np.random.default_rng(40)
IMAGES = RNG.uniform(size=(SIZE, 8, 8, 1)).astype("float32")
DIGITS = RNG.integers(0, 4, SIZE)
WORDS = np.array(["the", "cat", "dog", "house", "tree", "runs", "sleeps", "big", "red", "blue"])
TEXTS = [" ".join(words) for words in RNG.choice(WORDS, size=(SIZE, 6))]
TOKENS = RNG.integers(1, 20, (SIZE, 10))
LABELS = (TOKENS.sum(axis=1) % 2).astype("int64")


def found(model, history):
    return {**{f"history/{key}": np.array(v) for key, v in history.history.items()}, **state(model)}


class Sampling(layers.Layer):
    def __init__(self):
        super().__init__()
        self.seeds = keras.random.SeedGenerator(3)

    def call(self, inputs):
        mean, log_variance = inputs
        noise = keras.random.normal(ops.shape(mean), seed=self.seeds)
        return mean + ops.exp(0.5 * log_variance) * noise


class Variational(keras.Model):
    """No `call`; a loss and trackers of its own, as on keras.io, where it is not divided."""

    def __init__(self):
        super().__init__()
        image = keras.Input((8, 8, 1))
        x = layers.Conv2D(4, 3, strides=2, padding="same", activation="relu")(image)
        x = layers.Flatten()(x)
        mean, log_variance = layers.Dense(2)(x), layers.Dense(2)(x)
        made = Sampling()([mean, log_variance])
        self.encoder = keras.Model(image, [mean, log_variance, made])
        latent = keras.Input((2,))
        x = layers.Dense(4 * 4 * 4, activation="relu")(latent)
        x = layers.Reshape((4, 4, 4))(x)
        x = layers.Conv2DTranspose(1, 3, strides=2, padding="same", activation="sigmoid")(x)
        self.decoder = keras.Model(latent, x)
        self.tracker = keras.metrics.Mean(name="total")

    @property
    def metrics(self):
        return [self.tracker]

    def train_step(self, data):
        with tf.GradientTape() as tape:
            mean, log_variance, z = self.encoder(data)
            each = keras.losses.binary_crossentropy(data, self.decoder(z))
            made = ops.mean(ops.sum(each, axis=(1, 2)))
            far = -0.5 * (1 + log_variance - ops.square(mean) - ops.exp(log_variance))
            total = made + ops.mean(ops.sum(far, axis=1))
        grads = tape.gradient(total, self.trainable_weights)
        self.optimizer.apply_gradients(zip(grads, self.trainable_weights, strict=True))
        self.tracker.update_state(total)
        return {"total": self.tracker.result()}


@row("VAE", single=False)
def variational(scope):
    with scope():
        model = Variational()
        model.compile(optimizer=keras.optimizers.Adam(0.01))
    return found(model, model.fit(batches(IMAGES), epochs=2, verbose=0))


class Adversarial(keras.Model):
    def __init__(self):
        super().__init__()
        self.discriminator = keras.Sequential(
            [
                keras.Input((8, 8, 1)),
                layers.Conv2D(4, 4, strides=2, padding="same"),
                layers.LeakyReLU(negative_slope=0.2),
                layers.Flatten(),
                layers.Dropout(0.2),
                layers.Dense(1, activation="sigmoid"),
            ]
        )
        self.generator = keras.Sequential(
            [
                keras.Input((6,)),
                layers.Dense(4 * 4 * 4),
                layers.Reshape((4, 4, 4)),
                layers.Conv2DTranspose(4, 4, strides=2, padding="same"),
                layers.LeakyReLU(negative_slope=0.2),
                layers.Conv2D(1, 5, padding="same", activation="sigmoid"),
            ]
        )
        self.seeds = keras.random.SeedGenerator(1337)

    def compile(self, d_optimizer, g_optimizer, loss_fn):
        super().compile()
        self.d_optimizer, self.g_optimizer, self.loss_fn = d_optimizer, g_optimizer, loss_fn
        self.d_metric = keras.metrics.Mean(name="d_loss")
        self.g_metric = keras.metrics.Mean(name="g_loss")

    @property
    def metrics(self):
        return [self.d_metric, self.g_metric]

    def train_step(self, real):
        size = ops.shape(real)[0]
        noise = keras.random.normal((size, 6), seed=self.seeds)
        both = ops.concatenate([self.generator(noise), real], axis=0)
        labels = ops.concatenate([ops.ones((size, 1)), ops.zeros((size, 1))], axis=0)
        with tf.GradientTape() as tape:
            d_loss = self.loss_fn(labels, self.discriminator(both))
        weights = self.discriminator.trainable_weights
        self.d_optimizer.apply(tape.gradient(d_loss, weights), weights)
        noise = keras.random.normal((size, 6), seed=self.seeds)
        with tf.GradientTape() as tape:
            guessed = self.discriminator(self.generator(noise))
            g_loss = self.loss_fn(ops.zeros((size, 1)), guessed)
        weights = self.generator.trainable_weights
        self.g_optimizer.apply(tape.gradient(g_loss, weights), weights)
        self.d_metric.update_state(d_loss)
        self.g_metric.update_state(g_loss)
        return {"d_loss": self.d_metric.result(), "g_loss": self.g_metric.result()}


@row("DCGAN", single=False)
def adversarial(scope):
    with scope():
        model = Adversarial()
    model.compile(
        d_optimizer=keras.optimizers.Adam(0.01),
        g_optimizer=keras.optimizers.Adam(0.01),
        loss_fn=keras.losses.BinaryCrossentropy(),
    )
    history = model.fit(batches(IMAGES), epochs=2, verbose=0).history
    parts = {
        f"weights/{i}": weight.numpy()
        for part in (model.discriminator, model.generator)
        for i, weight in enumerate(part.weights, 100 * (part is model.generator))
    }
    return {**{key: np.array(values) for key, values in history.items()}, **parts}


def classifier(width):
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            layers.Conv2D(width, 3, strides=2, padding="same", activation="relu"),
            layers.Flatten(),
            layers.Dense(4),
        ]
    )


class Distiller(keras.Model):
    def __init__(self, student, teacher):
        super().__init__()
        self.teacher, self.student = teacher, student

    def compile(self, optimizer, metrics, student_loss, distillation_loss, *, alpha, temperature):
        super().compile(optimizer=optimizer, metrics=metrics)
        self.student_loss, self.distillation_loss = student_loss, distillation_loss
        self.alpha, self.temperature = alpha, temperature

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, allow_empty=False):
        hints = ops.softmax(self.teacher(x, training=False) / self.temperature, axis=1)
        taken = ops.softmax(y_pred / self.temperature, axis=1)
        distilled = self.distillation_loss(hints, taken) * self.temperature**2
        return self.alpha * self.student_loss(y, y_pred) + (1 - self.alpha) * distilled

    def call(self, x):
        return self.student(x)


@row("knowledge distillation")
def distillation(scope):
    with scope():
        teacher, student = classifier(8), classifier(2)
        teacher.compile(
            optimizer=keras.optimizers.Adam(0.01),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        )
        teacher.fit(batches(IMAGES, DIGITS), epochs=1, verbose=0)
        model = Distiller(student, teacher)
        model.compile(
            optimizer=keras.optimizers.Adam(0.01),
            metrics=[keras.metrics.SparseCategoricalAccuracy()],
            student_loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            distillation_loss=keras.losses.KLDivergence(),
            alpha=0.1,
            temperature=10,
        )
    return found(model, model.fit(batches(IMAGES, DIGITS), epochs=2, verbose=0))


class Contrastive(keras.Model):
    """Two views of each image, and the rest of the batch as negatives."""

    def __init__(self):
        super().__init__()
        self.augment = keras.Sequential(
            [
                keras.Input((8, 8, 1)),
                layers.RandomFlip(seed=1),
                layers.RandomTranslation(0.2, 0.2, seed=2),
            ]
        )
        self.encoder = classifier(4)
        self.tracker = keras.metrics.Mean(name="contrastive")
        self.accuracy = keras.metrics.SparseCategoricalAccuracy(name="accuracy")

    @property
    def metrics(self):
        return [self.tracker, self.accuracy]

    def train_step(self, images):
        one, other = (self.augment(images, training=True) for _ in range(2))
        with tf.GradientTape() as tape:
            one, other = (
                keras.utils.normalize(self.encoder(view), axis=1) for view in (one, other)
            )
            alike = ops.matmul(one, ops.transpose(other)) / 0.1
            labels = ops.arange(ops.shape(one)[0])
            losses = [
                keras.losses.sparse_categorical_crossentropy(labels, each, from_logits=True)
                for each in (alike, ops.transpose(alike))
            ]
            loss = ops.mean(losses[0] + losses[1]) / 2
        weights = self.encoder.trainable_weights
        self.optimizer.apply(tape.gradient(loss, weights), weights)
        self.tracker.update_state(loss)
        self.accuracy.update_state(labels, alike)
        return {metric.name: metric.result() for metric in self.metrics}


@row("SimCLR", single=False)
def contrastive(scope):
    with scope():
        model = Contrastive()
        model.compile(optimizer=keras.optimizers.Adam(0.01))
    return found(model, model.fit(batches(IMAGES), epochs=2, verbose=0))


class TransformerBlock(layers.Layer):
    def __init__(self, width, heads, inner):
        super().__init__()
        self.attend = layers.MultiHeadAttention(num_heads=heads, key_dim=width)
        self.feed = keras.Sequential([layers.Dense(inner, activation="relu"), layers.Dense(width)])
        self.norms = [layers.LayerNormalization(epsilon=1e-6) for _ in range(2)]

    def call(self, x):
        x = self.norms[0](x + self.attend(x, x))
        return self.norms[1](x + self.feed(x))


class TokensAndPositions(layers.Layer):
    def __init__(self, length, words, width):
        super().__init__()
        self.tokens = layers.Embedding(words, width, mask_zero=True)
        self.positions = layers.Embedding(length, width)

    def compute_mask(self, x, mask=None):
        return ops.not_equal(x, 0)

    def call(self, x):
        return self.tokens(x) + self.positions(ops.arange(0, ops.shape(x)[-1]))


@row("a transformer from scratch")
def transformer(scope):
    tokens = np.where(np.arange(10) < RNG.integers(3, 11, (SIZE, 1)), TOKENS, 0)
    with scope():
        inputs = keras.Input((10,))
        x = TokensAndPositions(10, 20, 8)(inputs)
        x = layers.GlobalAveragePooling1D()(TransformerBlock(8, 2, 16)(x))
        outputs = layers.Dense(2, activation="softmax")(x)
        model = keras.Model(inputs, outputs)
        model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    data = {"x": tokens, "y": LABELS, "batch_size": BATCH, "validation_split": 0.25}
    return found(model, model.fit(**data, shuffle=False, epochs=2, verbose=0))


@row("image segmentation", tolerance=2e-4)
def segmentation(scope):
    def normed(x):
        return layers.BatchNormalization(synchronized=True)(x)

    masks = (IMAGES[..., 0] * 3).astype("int32")
    with scope():
        inputs = keras.Input((8, 8, 1))
        x = normed(layers.Conv2D(4, 3, strides=2, padding="same")(inputs))
        before = x = layers.Activation("relu")(x)
        x = normed(layers.SeparableConv2D(8, 3, padding="same")(layers.Activation("relu")(x)))
        x = layers.MaxPooling2D(3, strides=2, padding="same")(x)
        x = layers.add([x, layers.Conv2D(8, 1, strides=2, padding="same")(before)])
        x = normed(layers.Conv2DTranspose(4, 3, padding="same")(layers.Activation("relu")(x)))
        x = layers.UpSampling2D(4)(x)
        outputs = layers.Conv2D(3, 3, activation="softmax", padding="same")(x)
        model = keras.Model(inputs, outputs)
        model.compile(optimizer=keras.optimizers.SGD(0.05), loss="sparse_categorical_crossentropy")
    best = keras.callbacks.ModelCheckpoint("segmentation.keras", save_best_only=True)
    data = batches(IMAGES, masks)
    return found(
        model, model.fit(data, validation_data=data, epochs=2, verbose=0, callbacks=[best])
    )


@row("a timeseries with LSTM")
def timeseries(scope):
    series = np.sin(np.arange(90) / 7)[:, None] + RNG.normal(scale=0.1, size=(90, 3))
    data = keras.utils.timeseries_dataset_from_array(
        series.astype("float32"),
        series[12:, 1].astype("float32"),
        sequence_length=10,
        sampling_rate=1,
        batch_size=BATCH,
    )
    with scope():
        inputs = keras.Input((10, 3))
        model = keras.Model(inputs, layers.Dense(1)(layers.LSTM(6)(inputs)))
        model.compile(optimizer=keras.optimizers.Adam(0.01), loss="mse")
    callbacks = [
        keras.callbacks.EarlyStopping(monitor="val_loss", min_delta=0, patience=5),
        keras.callbacks.ModelCheckpoint(
            filepath="series.weights.h5", save_weights_only=True, save_best_only=True
        ),
    ]
    history = model.fit(data, epochs=3, validation_data=data, callbacks=callbacks, verbose=0)
    return found(model, history)


@row("structured data with FeatureSpace")
def features(scope):
    table = {
        "age": RNG.integers(20, 80, SIZE).astype("float32"),
        "kind": RNG.choice(["a", "b", "c"], SIZE),
        "count": RNG.integers(0, 4, SIZE),
    }
    data = tf.data.Dataset.from_tensor_slices((table, LABELS))
    space = keras.utils.FeatureSpace(
        features={
            "age": keras.utils.FeatureSpace.float_discretized(num_bins=5),
            "kind": keras.utils.FeatureSpace.string_categorical(num_oov_indices=0),
            "count": keras.utils.FeatureSpace.integer_categorical(num_oov_indices=0),
        },
        crosses=[keras.utils.FeatureSpace.cross(("kind", "count"), crossing_dim=8)],
        output_mode="concat",
    )
    with scope():
        space.adapt(data.map(lambda x, _: x))
        encoded = space.get_encoded_features()
        x = layers.Dense(8, activation="relu")(encoded)
        model = keras.Model(encoded, layers.Dense(1, activation="sigmoid")(x))
        model.compile("adam", "binary_crossentropy", metrics=["accuracy"])
    prepared = data.batch(BATCH).map(lambda x, y: (space(x), y))
    return found(model, model.fit(prepared, epochs=2, verbose=0))


@row("text with TextVectorization")
def text(scope):
    vectorize = layers.TextVectorization(max_tokens=20, output_sequence_length=8)
    vectorize.adapt(tf.data.Dataset.from_tensor_slices(TEXTS).batch(BATCH))
    with scope():
        inputs = keras.Input((8,), dtype="int64")
        x = layers.Embedding(20, 6)(inputs)
        x = layers.Conv1D(8, 3, activation="relu")(x)
        x = layers.Dense(1, activation="sigmoid")(layers.GlobalMaxPooling1D()(x))
        model = keras.Model(inputs, x)
        model.compile("adam", "binary_crossentropy", metrics=["accuracy"])
    data = batches(np.array(TEXTS), LABELS).map(lambda x, y: (vectorize(x), y))
    return found(model, model.fit(data, epochs=2, verbose=0))


if __name__ == "__main__":
    keras_rows.main(*sys.argv[1:])
