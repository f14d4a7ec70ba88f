"""One worker that stops stops all of them, and callbacks may differ between the workers."""

import pytest
from gangs import found

pytestmark = [pytest.mark.slow, pytest.mark.tensorflow]

STOPS = """
import json, os
import keras
import numpy as np
import tensorflow as tf
import mwmagic.keras

TASK = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
strategy = tf.distribute.MultiWorkerMirroredStrategy()

class Stops(keras.callbacks.Callback):
    def __init__(self, event, at):
        super().__init__()
        self.at, self.number = at, -1
        setattr(self, event, self.happens)

    def happens(self, number, logs=None):
        self.number += 1
        if self.number == self.at:
            self.model.stop_training = True

def steps(*callbacks):
    with strategy.scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    x, y = np.ones((16, 3)), np.ones((16, 1))
    model.fit(x, y, batch_size=4, epochs=3, verbose=0, callbacks=list(callbacks))
    return int(model.optimizer.iterations.numpy())

one = lambda event, at: [Stops(event, at)] if TASK == 1 else []
found = {
    "batch of one": steps(*one("on_train_batch_end", 4)),
    "batch of all": steps(Stops("on_train_batch_end", 5)),
    "begin of an epoch": steps(*one("on_epoch_begin", 1)),
    "end of an epoch": steps(*one("on_epoch_end", 0)),
    "none": steps(),
    "early stopping": steps(
        keras.callbacks.EarlyStopping(monitor="loss", patience=0, min_delta=99.0)
    ),
    "a log on the chief": steps(*[Stops("on_train_batch_end", 99)][TASK:]),
}
print("found", json.dumps(found), flush=True)
"""

# Four batches in each of three epochs.
EXPECTED = {
    "batch of one": 5,
    "batch of all": 6,
    "begin of an epoch": 5,
    "end of an epoch": 4,
    "none": 12,
    "early stopping": 8,
    "a log on the chief": 12,
}


def test_any_worker_stops_all_at_the_same_batch(with_keras, tmp_path):
    assert found(tmp_path, STOPS, with_keras) == [EXPECTED, EXPECTED]
