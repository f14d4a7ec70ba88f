"""A training that gives the same numbers wherever its workers run."""

PROGRAM = """
import os
import keras
import numpy as np
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
keras.utils.set_random_seed(1)
x = np.random.default_rng(0).normal(size=(128, 16)).astype("float32")
y = (x.sum(1) > 0).astype("float32")
with strategy.scope():
    model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(1, activation="sigmoid")])
    model.compile("sgd", "binary_crossentropy")
model.fit(x, y, batch_size=64, epochs=2, verbose=2)
print("on", os.uname().nodename)
print("found in", tf.__file__)
print("weights", *(repr(float(abs(one).sum())) for one in model.get_weights()))
"""


def trained(cluster):
    """Train on every task; return the hosts, and the lines with the weights."""
    run = cluster.run("train.py", source=PROGRAM)
    run.wait(300)
    lines = [run.logs(task).decode().splitlines() for task in cluster.tasks]
    hosts = [line.split()[1] for own in lines for line in own if line.startswith("on ")]
    return hosts, [line for own in lines for line in own if line.startswith("weights ")]


def assert_it_is_found_elsewhere_on_one(run):
    """Check that one of a run's three tasks found TensorFlow where the others did not."""
    lines = [line for task in range(3) for line in run.logs(task).decode().splitlines()]
    places = [line for line in lines if line.startswith("found in ")]
    assert len(places) == 3
    assert len(set(places)) == 2
