"""A training with numbers that a loop by hand has, too."""

from __future__ import annotations

import numpy as np

DATA = """
import numpy as np
x = np.arange(90, dtype="float32").reshape(30, 3) % 7 / 7
y = x @ np.array([[1.0], [-2.0], [0.5]], "float32")
"""

SETUP = """
import mwmagic.worker.reports, mwmagic.worker.watch
mwmagic.worker.reports.GAP_SECONDS = mwmagic.worker.watch.STEP_SECONDS = 0.0  # every step is sent

def build(**options):
    model = keras.Sequential([keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")])
    model.compile(keras.optimizers.SGD(0.1), options.pop("loss", "mse"), **options)
    return model
"""


def losses(epochs, batch):
    """Return the loss of each step, of each epoch, and on all data after each epoch."""
    names = {}
    exec(DATA, names)
    x, y, weights = names["x"], names["y"], np.zeros((3, 1))
    steps, means, after = [], [], []
    for _ in range(epochs):
        errors = []
        for start in range(0, len(x), batch):
            part = x[start : start + batch]
            error = part @ weights - y[start : start + batch]
            steps.append(float(np.mean(error**2)))
            errors.append(error)
            weights -= 0.1 * 2 * part.T @ error / len(part)
        means.append(float(np.mean(np.concatenate(errors) ** 2)))
        after.append(float(np.mean((x @ weights - y) ** 2)))
    return steps, means, after
