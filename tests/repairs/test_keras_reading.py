"""What is read for a processor stays where it is, which spares a pipeline in each epoch."""

import pytest
from gangs import found

pytestmark = [pytest.mark.slow, pytest.mark.tensorflow]

READS = """
import json
import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.data.ops.multi_device_iterator_ops import OwnedMultiDeviceIterator
import mwmagic.keras

strategy = tf.distribute.MultiWorkerMirroredStrategy()
made, make = [], OwnedMultiDeviceIterator.__init__

def noting(self, dataset=None, *args, **kwargs):
    if dataset is not None:  # otherwise it is one that there is, passed to a graph
        made.append(self)
    make(self, dataset, *args, **kwargs)

OwnedMultiDeviceIterator.__init__ = noting
with strategy.scope():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")

def brought(*data, **options):
    made.clear()
    model.fit(*data, epochs=2, verbose=0, **options)
    return bool(made)

def endless():
    while True:
        yield x[:4], y[:4]

x, y = np.ones((16, 3), "float32"), np.ones((16, 1), "float32")
data = tf.data.Dataset.from_tensor_slices((x, y)).batch(4)
found = {
    "arrays": brought(x, y, batch_size=4, shuffle=True),
    "a dataset": brought(data, validation_data=data),
    "a generator": brought(endless(), steps_per_epoch=4),
    "your own": brought(strategy.experimental_distribute_dataset(data)),
}
for distributed in (data, strategy.experimental_distribute_dataset(data)):
    model.fit(distributed, epochs=1, verbose=0)
    model.train_function(iter(strategy.experimental_distribute_dataset(data)))
print("found", json.dumps(found), flush=True)
"""
EXPECTED = {"arrays": False, "a dataset": False, "a generator": False, "your own": True}


def test_no_pipeline_brings_data_to_a_processor_but_one_that_you_made(with_keras, tmp_path):
    assert found(tmp_path, READS, with_keras) == [EXPECTED, EXPECTED]
