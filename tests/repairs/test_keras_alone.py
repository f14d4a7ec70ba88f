"""In a single process nothing changes, whether or not Keras is repaired."""

import json

import pytest
from gangs import Gang

pytestmark = [pytest.mark.slow, pytest.mark.tensorflow]

TRAINS = """
import json, sys
import numpy as np
import keras
from keras.src.optimizers.base_optimizer import BaseOptimizer

Trainer = next(cls for cls in keras.Model.__mro__ if "_make_function" in vars(cls))

def _backend_apply_gradients(self, grads, trainable_variables):
    return original(self, grads, trainable_variables)

original = BaseOptimizer._backend_apply_gradients
if "edited" in sys.argv:
    BaseOptimizer._backend_apply_gradients = _backend_apply_gradients
if "plain" not in sys.argv:
    import mwmagic.keras

epochs = []
class Notes(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        with open("backup/training_metadata.json") as metadata:
            epochs.append(json.load(metadata))

def build():
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1, activity_regularizer="l2")])
    model.compile("adam", "mse")
    return model

x, y = np.arange(24.0).reshape(8, 3) / 24, np.ones((8, 1))
model = build()
losses = model.fit(x, y, verbose=0, epochs=2).history["loss"]
losses.append(float(model.train_on_batch(x, y)))
model = build()
backup = keras.callbacks.BackupAndRestore("backup", save_freq=1)
options = {"batch_size": 4, "initial_epoch": 2, "epochs": 4, "verbose": 0}
model.fit(x, y, callbacks=[backup, Notes()], **options)
file = Trainer._make_function.__code__.co_filename
print(json.dumps({"losses": losses, "epochs": epochs, "file": file}))
"""


@pytest.fixture(scope="module")
def outcome(with_keras, tmp_path_factory):
    """Return what a single process came to by itself, repaired, and with a Keras unknown here."""

    def of(case):
        directory = tmp_path_factory.mktemp(case)
        path = directory / "trains.py"
        path.write_text(TRAINS)
        with Gang(directory, path, [case], workers=1, nursery=with_keras) as gang:
            assert gang.wait() == [0], gang.tails()
            said, _, result = gang.text(0).strip().rpartition("\n")
            assert "mwmagic: " not in said
            return json.loads(result)

    return {case: of(case) for case in ("plain", "repaired", "edited")}


@pytest.mark.parametrize("case", ["repaired", "edited"])
def test_numbers_and_files_are_those_of_plain_keras(outcome, case):
    for what in ("losses", "epochs"):
        assert outcome[case][what] == outcome["plain"][what]


def test_an_unknown_keras_keeps_its_functions(outcome):
    assert "/mwmagic/repairs/" in outcome["repaired"]["file"]
    assert "/keras/src/" in outcome["edited"]["file"]
