"""What is told of exceptions that frameworks wrap, trace and carry between threads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from provocations import GANG, MODEL

import mwmagic
from mwmagic import Cluster
from mwmagic.client.reading import read
from mwmagic.diagnosis import Exit, diagnose
from mwmagic.errors import WorkerFailed
from mwmagic.words.failure import explain

SAMPLES = Path(__file__).parent / "samples"
SCRIPT = "/home/ann/project/main.py"
RESHAPE = "ValueError: Cannot reshape a tensor with 6 elements to shape [7] (7 elements) for 'Resh"
EQUAL = "Dimensions must be equal, but are 2 and 3 for '"


def told(report):
    """Return what is told of a failure, without the sentence on how the process ended."""
    cause = diagnose([Exit("worker:0", 1, 1, None, 2.0, report=report, script=SCRIPT)])
    first, *others = explain(cause)
    return [first.removeprefix("worker:0 exited with code 1: "), *others]


def sample(name):
    return told(json.loads((SAMPLES / f"{name}.json").read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    ("name", "words", "place", "source"),
    [
        ("traced-function", RESHAPE, (5, "inner"), "return tf.reshape(x,[7])"),
        ("traced-map", RESHAPE, (5, "parse"), "return tf.reshape(x, [7])"),
        ("traced-key", "KeyError: 'label'", (5, "parse"), 'label = {}["label"]'),
        # AutoGraph says that a variable is not defined before the loop, and why it is not.
        ("traced-loop", RESHAPE, (6, "step"), "return tf.reshape(x, [7])"),
        (
            "python-function",
            "UnknownError: Error in user-defined ",
            (5, "load"),
            "return {}[int(x)]",
        ),
    ],
)
def test_what_is_raised_inside_is_reported_with_the_inner_line(name, words, place, source):
    first, where, line, *_ = sample(name)
    assert first.startswith(words)
    assert where == f"  at {SCRIPT}, line {place[0]}, in {place[1]}"
    assert line == f"    {source}"


def test_what_an_operation_says_is_reported_with_the_line_that_defined_it():
    assert sample("graph") == [
        "InvalidArgumentError: indices[0] = 101 is not in [0, 8)",
        f"  at {SCRIPT}, line 8, in call",
    ]


@pytest.mark.parametrize("name", ["layer", "legacy-layer"])
def test_a_layer_says_what_was_wrong_and_with_which_arguments(name):
    lines = sample(name)
    assert any(EQUAL in line for line in lines[:2])
    assert any("rguments received by" in line for line in lines[1:3])
    assert any(line.startswith(f"  at {SCRIPT}, line ") for line in lines)
    assert not any("\x1b" in line or "in user code" in line for line in lines)


def test_a_child_process_tells_its_own_line():
    assert sample("pool") == [
        "KeyError: 1",
        f"  at {SCRIPT}, line 7, in <module>",
        "    pool.map(work, [1])",
        "  It came from KeyError: 1",
        f"  at {SCRIPT}, line 4, in work",
        "    return {}[x]",
    ]


# Real runs.

CHAIN = """
def load():
    raise OSError("no such file\\nin the archive")

try:
    load()
except OSError as error:
    raise RuntimeError("the data cannot be prepared") from error
"""
GROUP = """
class Group(Exception):  # as Python 3.11 has it, and `exceptiongroup` before
    def __init__(self, text, exceptions):
        super().__init__(text)
        self.exceptions = tuple(exceptions)

def load(part):
    error = ValueError(f"part {part} is empty")
    error.__notes__ = ["see the delivery of Monday"]
    raise error

failures = []
for part in (3, 7):
    try:
        load(part)
    except ValueError as error:
        failures.append(error)
raise Group("unhandled errors (2 sub-exceptions)", failures)
"""
MAP = """
import tensorflow as tf

def parse(x):
    return tf.reshape(x, [7])

tf.data.Dataset.from_tensors(tf.ones((2, 3))).map(parse)
"""
FIT = """
import numpy as np
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()

class Mine(tf.keras.layers.Layer):
    def call(self, x):
        return tf.matmul(x, tf.ones((3, 4)))

with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(2), Mine()])
    model.compile("sgd", "mse")
model.fit(np.ones((8, 2)), np.ones((8, 4)), verbose=0)
"""

SKIPS = (
    GANG
    + MODEL
    + """
with strategy.scope():
    model = make()
model.fit(*data(8), verbose=0)
if first:
    model.evaluate(*data(8), verbose=0)
"""
)


def fails(cluster, folder, code):
    """Run code and return its failed run and what the error says."""
    script = folder / "main.py"
    script.write_text(code)
    run = cluster.run(script)
    with pytest.raises(WorkerFailed) as failed:
        run.wait(120)
    return run, str(failed.value).splitlines()


@pytest.mark.slow
def test_the_error_of_a_run_says_what_it_came_from(tmp_path):
    with Cluster(1, directory=tmp_path, warm=False, grace=0.1) as cluster:
        _, lines = fails(cluster, tmp_path, CHAIN)
    script = tmp_path / "main.py"
    assert lines[0].endswith("RuntimeError: the data cannot be prepared")
    assert lines[1] == f"  at {script}, line 8, in <module>"
    assert lines[3:] == [
        "  It came from OSError: no such file",
        "    in the archive",
        f"  at {script}, line 3, in load",
        '    raise OSError("no such file\\nin the archive")',
    ]


@pytest.mark.slow
def test_the_error_of_a_run_names_all_that_is_in_a_group_with_its_notes(tmp_path):
    with Cluster(1, directory=tmp_path, warm=False, grace=0.1) as cluster:
        _, lines = fails(cluster, tmp_path, GROUP)
    script = tmp_path / "main.py"
    each = [f"ValueError: part {part} is empty" for part in (3, 7)]
    told = "; ".join(f"{one} (see the delivery of Monday)" for one in each)
    assert lines[0].endswith(f"Group: unhandled errors (2 sub-exceptions): {told}")
    for one in each:
        at = lines.index(f"  It came from {one}")
        assert lines[at + 1 : at + 3] == [
            "    see the delivery of Monday",
            f"  at {script}, line 10, in load",
        ]


@pytest.mark.slow
@pytest.mark.tensorflow
def test_the_error_of_a_run_says_what_tensorflow_and_keras_say(tmp_path):
    script = tmp_path / "main.py"
    with Cluster(1, directory=tmp_path, grace=0.1) as cluster:
        _, lines = fails(cluster, tmp_path, MAP)
        assert RESHAPE in lines[0]
        assert lines[1] == f"  at {script}, line 5, in parse"
        run, lines = fails(cluster, tmp_path, FIT)
    assert EQUAL in lines[0] + lines[1]
    assert f"  at {script}, line 9, in call" in lines
    log = Path(run.status().tasks["worker:0"].log)
    package = Path(mwmagic.__file__).parent
    assert f"{package}/repairs/" in log.read_text()
    assert [line for line in read(log, raw=True) if f"{package}/" in line]
    shown = read(log)
    assert not [line for line in shown if f"{package}/" in line]
    assert "    model.fit(np.ones((8, 2)), np.ones((8, 4)), verbose=0)" in shown


@pytest.mark.slow
@pytest.mark.tensorflow
def test_a_worker_that_skips_what_another_calls_is_reported_with_that_line(warm_pair, tmp_path):
    script = tmp_path / "main.py"
    run, lines = fails(warm_pair, tmp_path, SKIPS)
    assert lines[0].endswith("worker:1 finished while worker:0 still needed it")
    at = SKIPS.splitlines().index("    model.evaluate(*data(8), verbose=0)") + 1
    assert lines[1:3] == [
        f"  worker:0 was at {script}, line {at}, in <module>",
        "    model.evaluate(*data(8), verbose=0)",
    ]
    assert run.cause.known == "left-early"
    assert not run.cause.log
