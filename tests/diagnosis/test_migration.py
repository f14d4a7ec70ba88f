"""What Keras 3 lacks: each entry's sign is provoked, and tf-keras is recommended if it has it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from provocations import LACKING

from mwmagic.diagnosis.known import pattern, recognise
from mwmagic.diagnosis.migration import REMOVED
from mwmagic.diagnosis.table import KNOWN

FAILING = """
import json, sys
import mwmagic.keras
import numpy as np
import tensorflow as tf
k = tf.keras
x, y = np.zeros((8, 4), "float32"), np.zeros((8, 1), "float32")
def scaled():
    return k.mixed_precision.LossScaleOptimizer(k.optimizers.SGD())
def model():
    made = k.Sequential([k.layers.Input((4,)), k.layers.Dense(1)])
    made.compile("sgd", "mse")
    return made
raised = []
for code in json.loads(sys.argv[1]):
    try:
        exec(code, dict(globals()))
    except Exception as error:
        raised.append(f"{type(error).__name__}: {error}")
    else:
        raised.append(None)
open("raised.json", "w").write(json.dumps(raised))
"""


def raised(folder, **env):
    """Return what each line of Python raises, in one process."""
    codes = [code for _, code in LACKING]
    command = [sys.executable, "-c", FAILING, json.dumps(codes)]
    subprocess.run(command, cwd=folder, env={**os.environ, **env}, check=True, capture_output=True)
    return dict(zip(codes, json.loads((folder / "raised.json").read_text()), strict=True))


@pytest.fixture(scope="module")
def keras_3(tmp_path_factory):
    return raised(tmp_path_factory.mktemp("keras-3"))


@pytest.fixture(scope="module")
def keras_2(tmp_path_factory):
    return raised(tmp_path_factory.mktemp("keras-2"), MWMAGIC_KERAS="legacy")


def entry(what):
    [found] = [known for known in REMOVED if known.name == f"keras-3-{what}"]
    return found


@pytest.mark.slow
@pytest.mark.tensorflow
@pytest.mark.parametrize(("what", "code"), LACKING)
def test_what_keras_3_lacks_is_recognised(keras_3, keras_2, what, code):
    error = keras_3[code]
    assert error, "Keras has it"
    match = recognise(KNOWN, [error], {"keras": "auto"})
    assert match, error
    assert match.known == entry(what), error
    recommends = "--keras legacy" in match.known.advice({"keras": "auto"})
    assert recommends == (keras_2[code] is None), keras_2[code]


@pytest.mark.slow
@pytest.mark.tensorflow
def test_each_of_its_signs_is_provoked(keras_3):
    errors = [error for error in keras_3.values() if error]
    signs = [sign for known in REMOVED for sign in known.signs]
    assert [sign for sign in signs if not any(map(pattern(sign).search, errors))] == []


@pytest.mark.parametrize(
    "error",
    [
        "AttributeError: 'Namespace' object has no attribute 'lr'",
        "AttributeError: 'LinearSVC' object has no attribute 'predict_proba'",
        "AttributeError: 'Trial' object has no attribute 'weights'",
        "TypeError: fit() got an unexpected keyword argument 'workers'",
        "AttributeError: 'Net' object has no attribute 'output_shape'",
    ],
)
def test_what_other_packages_lack_is_not_put_down_to_keras(error):
    assert recognise(KNOWN, [error], {"keras": "auto"}) is None
