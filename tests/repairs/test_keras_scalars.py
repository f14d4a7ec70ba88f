"""Variables become Python numbers where programs expect it, as under one process."""

import pytest
from gangs import Gang

pytestmark = [pytest.mark.slow, pytest.mark.tensorflow]

READS = """
import keras
import numpy as np
import tensorflow as tf
import mwmagic.keras

strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.25), "mse")

class Rates(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        optimizer = self.model.optimizer
        print("read", float(optimizer.learning_rate), int(optimizer.iterations), flush=True)

model.fit(np.ones((8, 3)), np.ones((8, 1)), batch_size=4, epochs=2, verbose=0, callbacks=[Rates()])
try:
    float(model.weights[0])
except TypeError as error:
    print("refused", error)
"""


def test_a_learning_rate_and_a_count_of_steps_are_numbers(with_keras, tmp_path):
    path = tmp_path / "reads.py"
    path.write_text(READS)
    with Gang(tmp_path / "run", path, nursery=with_keras) as gang:
        assert gang.wait() == [0, 0], gang.tails()
        for task in range(2):
            lines = gang.text(task).splitlines()
            reads = [line for line in lines if line.startswith("read ")]
            assert reads == ["read 0.25 2", "read 0.25 4"]
            assert any(line.startswith("refused Only scalar arrays") for line in lines)
