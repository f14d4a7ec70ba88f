"""What is neither as defective nor as sound as it is known to be is refused, and nothing else."""

import json
import os
import re

import pytest
from gangs import Gang
from processes import printed

pytestmark = [pytest.mark.slow, pytest.mark.tensorflow]

# Everything here only imports Keras: a process that has run an operation cannot fork.
EDITED = """
import contextlib, inspect, json, os, sys, types
import keras
from mwmagic import repairs as package
from mwmagic.repairs import repair as known, repairs
from mwmagic.repairs.repair import Sign, State

def edited(*args, **kwargs):
    "Another body."

def renamed():
    "What the name of a function that is gone stands for."

@contextlib.contextmanager
def changed(sign, into):
    owner = sign.owner
    if inspect.isclass(owner):
        owner = next(cls for cls in owner.__mro__ if sign.name in vars(cls))
    kept = inspect.getattr_static(owner, sign.name)
    if into is renamed:
        delattr(owner, sign.name)
        setattr(owner, f"{sign.name}_2", kept)
    else:
        setattr(owner, sign.name, into)
    try:
        yield
    finally:
        setattr(owner, sign.name, kept)

def refused():
    "Tell what each public way into Keras says where there are several workers."
    known.divides_batches = lambda strategy: strategy == "several"
    user = types.SimpleNamespace(distribute_strategy="several")
    ways = known.ways_in(keras.Model, keras.optimizers.Optimizer)
    for way in (getattr(one.owner, one.name) for one in ways):
        try:
            way(user, [])
        except Exception as error:
            yield f"{type(error).__name__}: {error}"

def forked(make):
    "Return what a function makes in a child, which this process knows nothing of."
    read, write = os.pipe()
    if not os.fork():
        os.write(write, json.dumps(make()).encode())
        os._exit(0)
    os.close(write)
    with open(read) as made:
        text = made.read()
    os.wait()
    return json.loads(text)

def installed():
    lines = []
    package.install("auto", lines.append)
    return lines + list(refused())

def guarded(repair):
    "Return what is said of Keras, and which uses of a repair are not looked at."
    said = installed()
    functions = {str(use.name): getattr(use.owner, use.name, None) for use in repair.uses}
    here = [name for name, one in functions.items() if hasattr(one, "__wrapped__")]
    return [said, sorted({*functions} - {*here})]

said = {"states": {}, "refused": {}, "parts": {}, "blind": []}
whole = {(s.owner, s.name) for r in repairs.REPAIRS if not r.uses for s in r.defect}
for repair in repairs.REPAIRS:
    signs = repair.defect if repair.state is State.DEFECTIVE else repair.cured
    own = [s for s in signs if not repair.uses or (s.owner, s.name) not in whole]
    said["states"][repair.feature] = repair.state.value
    for sign in signs:
        if not hasattr(sign.owner, sign.name):
            continue  # this Keras does not have it
        for into in (edited, renamed):
            if into is edited and not sign._says:
                continue
            with changed(sign, into):
                if repair.state is not State.UNKNOWN:
                    said["blind"].append([repair.feature, str(sign), into.__name__])
                case = f"{repair.feature}, {into.__name__}"
                if sign is own[0] and not repair.is_separable:
                    said["refused"][case] = forked(installed)
                elif sign is own[0]:
                    said["parts"][case] = forked(lambda: guarded(repair))

replaced = []
def noted(owner, name, replacement):
    replaced.append((owner, name))
    setattr(owner, name, replacement)
for module in list(sys.modules.values()):
    if module.__name__.startswith("mwmagic.repairs.") and hasattr(module, "replace"):
        module.replace = noted
said["unexamined"] = []
for repair in repairs.REPAIRS:
    replaced.clear()
    if repair.state is State.DEFECTIVE:
        examined = {(sign.owner, sign.name) for sign in repair.defect}
        repair.apply()
        said["unexamined"] += [
            [repair.feature, name] for owner, name in replaced if (owner, name) not in examined
        ]
print(json.dumps(said))
"""

WAYS = 7


def run(code, **env):
    env = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "", **env}
    return printed(code, env=env)


@pytest.fixture(scope="module")
def edited():
    return json.loads(run(EDITED))


def test_every_repair_notices_an_edit_and_a_new_name(edited):
    # That of a callback without a repair is known to be gone.
    blind = [what for what in edited["blind"] if what[0] != "OrbaxCheckpoint (refused)"]
    assert blind == []


def test_a_repair_examines_every_function_that_it_replaces(edited):
    orbax = ["OrbaxCheckpoint (refused)", "set_model"]
    assert [what for what in edited["unexamined"] if what != orbax] == []


def test_an_unknown_keras_is_refused_at_every_way_in(edited):
    refused = {k: v for k, v in edited["refused"].items() if not k.startswith("Orbax")}
    assert len(refused) > 15
    for case, errors in refused.items():
        feature = case.rpartition(",")[0]
        assert len(errors) == WAYS, case
        for error in errors:
            assert error.startswith("KerasRefused: mwmagic repairs Keras 3.13 to 3.15"), case
            assert feature in error, case
            assert "pip install" in error
            assert "--keras legacy" in error
            assert "--keras plain" in error


def test_a_part_that_is_unknown_is_refused_where_it_is_used(edited):
    assert len(edited["parts"]) > 25
    for case, (said, unguarded) in edited["parts"].items():
        feature = case.rpartition(",")[0]
        assert unguarded == [], case
        # The other ways in go on to Keras, which has no use for what it is given here.
        refused = [line for line in said if line.startswith("KerasRefused")]
        assert len(refused) == (feature == "predict_on_batch"), case
        [announced] = [line for line in said if "not known, and refused" in line]
        assert feature in announced


MOVED = """
import types
import keras
from keras.src.trainers import data_adapters
from mwmagic import repairs as package
from mwmagic.repairs import repair

del data_adapters.ArrayDataAdapter
package.install("auto", print)
repair.divides_batches = lambda strategy: strategy == "several"
try:
    keras.Model.fit(types.SimpleNamespace(distribute_strategy="several"))
except Exception as error:
    print(f"{type(error).__name__}: {error}")
"""


def test_a_keras_without_something_that_the_repairs_need_is_refused():
    said = run(MOVED)
    assert said.startswith("KerasRefused: mwmagic repairs Keras 3.13 to 3.15")
    assert "data_adapters.ArrayDataAdapter. Numbers could be wrong" in said


WAYS_IN = """
import sys
import keras
import numpy as np
import tensorflow as tf
from keras.src.optimizers.base_optimizer import BaseOptimizer

if "edited" in sys.argv:
    def edited(self, grads, trainable_variables):
        "Another body."
    BaseOptimizer._backend_apply_gradients = edited
import mwmagic.keras

strategy = tf.distribute.MultiWorkerMirroredStrategy()
x, y = np.ones((8, 3), "float32"), np.ones((8, 1), "float32")
with strategy.scope():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    optimizer = keras.optimizers.SGD(0.1)
    optimizer.build(model.trainable_variables)

@tf.function
def step():
    def replica():
        grads = [tf.ones(v.shape) for v in model.trainable_variables]
        optimizer.apply(grads, model.trainable_variables)
    strategy.run(replica)

ways = {
    "fit": lambda: model.fit(x, y, verbose=0),
    "batch": lambda: model.train_on_batch(x, y),
    "loop": step,
}
for way in sys.argv[1].split(","):
    try:
        ways[way]()
        print(way, "went on", flush=True)
    except Exception as error:
        # In a traced function, TensorFlow makes one of its own of it.
        print(way, "refused", "KerasRefused" in f"{type(error)} {error}", *str(error).split())
"""


def gang_of(nursery, tmp_path, *args):
    path = tmp_path / "ways.py"
    path.write_text(WAYS_IN)
    with Gang(tmp_path / "run", path, args, nursery=nursery) as gang:
        assert gang.wait() == [0, 0], gang.tails()
        return [gang.text(i).splitlines() for i in range(2)]


def test_several_workers_are_refused_whichever_way_they_train(with_keras, tmp_path):
    for lines in gang_of(with_keras, tmp_path, "fit,batch,loop", "edited"):
        for way in ("fit", "batch", "loop"):
            [error] = [line for line in lines if line.startswith(f"{way} refused True")]
            assert "gradient clipping, accumulation and EMA" in error
            assert "BaseOptimizer._backend_apply_gradients" in error


@pytest.mark.parametrize("way", ["batch", "loop"])
def test_repairs_are_announced_whichever_way_workers_train(with_keras, tmp_path, way):
    for lines in gang_of(with_keras, tmp_path, way):
        assert len([line for line in lines if line.startswith("mwmagic: repaired Keras")]) == 1
        assert f"{way} went on" in lines


IN_PARTS = """
import sys
import keras
import numpy as np
import tensorflow as tf
from mwmagic import repairs as package
from mwmagic.repairs import repairs

def edit(owner, name):
    original = getattr(owner, name)
    def edited(*args, **kwargs):
        "Another body."
        return original(*args, **kwargs)
    setattr(owner, name, edited)

parts = [repair for repair in repairs.REPAIRS if repair.uses]
whole = {(s.owner, s.name) for r in repairs.REPAIRS if not r.uses for s in r.defect}
for repair in parts:
    signs = [s for s in repair.defect if (s.owner, s.name) not in whole and s._says]
    signs = [s for s in signs if not isinstance(getattr(s.owner, s.name), property)]
    edit(signs[0].owner, signs[0].name)
assert {repair.state.value for repair in parts} == {"unknown"}
package.install("auto", lambda line: print(line, flush=True))

strategy = tf.distribute.MultiWorkerMirroredStrategy()
x, y = np.arange(24, dtype="float32").reshape(8, 3) / 24, np.ones((8, 1), "float32")

def made(optimizer="sgd", **options):
    with strategy.scope():
        start = keras.initializers.Constant(0.1)
        dense = keras.layers.Dense(1, kernel_initializer=start, **options)
        model = keras.Sequential([keras.Input((3,)), dense])
        model.compile(optimizer, "mse")
        return model

class Data(keras.utils.PyDataset):
    def __len__(self):
        return 2
    def __getitem__(self, number):
        return x[4 * number :][:4], y[4 * number :][:4]

model = made()
def fit(model=model, *callbacks, shuffle=False, data=(x, y)):
    return model.fit(*data, batch_size=4 if len(data) > 1 else None, verbose=0, shuffle=shuffle,
                     callbacks=list(callbacks))

def scaled():
    return keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD())

class Own(keras.callbacks.Callback):
    pass

callbacks = keras.callbacks
data = tf.data.Dataset.from_tensor_slices(x).batch(4)
pieces = {
    "arrays": fit,
    "a PyDataset in order": lambda: fit(data=[Data()]),
    "evaluate": lambda: model.evaluate(x, y, verbose=0),
    "predict arrays": lambda: model.predict(x, verbose=0),
    "shuffled arrays": lambda: fit(shuffle=True),
    "a shuffled PyDataset": lambda: fit(shuffle=True, data=[Data()]),
    "activity regularizers": lambda: made(activity_regularizer="l2"),
    "mixed precision": lambda: fit(made(scaled())),
    "predict in order": lambda: model.predict(data, verbose=0),
    "predict_on_batch": lambda: model.predict_on_batch(x),
    "`float` of a variable": lambda: float(model.optimizer.learning_rate),
    "save": lambda: model.save("model.keras"),
    "`stop_training` on one worker": lambda: fit(model, Own()),
    "ModelCheckpoint": lambda: fit(model, callbacks.ModelCheckpoint("model.keras")),
    "CSVLogger": lambda: fit(model, callbacks.CSVLogger("log.csv")),
    "TensorBoard": lambda: fit(model, callbacks.TensorBoard("logs")),
    "RemoteMonitor": lambda: fit(model, callbacks.RemoteMonitor()),
    "BackupAndRestore": lambda: fit(model, callbacks.BackupAndRestore("backup")),
}
for name, piece in pieces.items():
    try:
        came = piece()
        print(f"{name}: went on", flush=True)
        if name == "arrays":
            print("loss", came.history["loss"][0], flush=True)
    except Exception as error:
        print(f"{name}: {type(error).__name__}: {' '.join(str(error).split())}", flush=True)
"""
GO_ON = ["arrays", "a PyDataset in order", "evaluate", "predict arrays"]


def test_a_program_is_refused_only_what_it_uses_and_this_keras_has_otherwise(with_keras, tmp_path):
    path = tmp_path / "parts.py"
    path.write_text(IN_PARTS)
    with Gang(tmp_path / "run", path, nursery=with_keras) as gang:
        assert gang.wait() == [0, 0], gang.tails()
        for i in range(2):
            lines = gang.text(i).splitlines()
            came = dict(line.split(": ", 1) for line in lines if ": " in line)
            assert [name for name in GO_ON if came[name] != "went on"] == []
            features = re.findall(r'^    "([^"]+)": ', IN_PARTS, re.MULTILINE)[len(GO_ON) :]
            assert len(features) == 14
            for feature in features:
                assert came[feature].startswith("KerasRefused: mwmagic repairs Keras 3.13"), feature
                assert f"this program uses: {feature}" in came[feature]
                assert "Do without it, pip install" in came[feature]
                assert "--keras legacy" in came[feature]
            assert not (tmp_path / "run" / "model.keras").exists()
