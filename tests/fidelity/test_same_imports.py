"""A program imports what it would under ``python main.py``."""

from __future__ import annotations

import os
import signal
import time

import pytest
from compare import Program, Ways
from processes import eventually

from mwmagic import WorkerFailed
from mwmagic.words.run import remarks

pytestmark = [pytest.mark.slow, pytest.mark.tensorflow]

GIVEN = {
    "KERAS_BACKEND": "jax",
    "TZ": "Asia/Tokyo",
    "MPLBACKEND": "svg",
    "LC_ALL": "C",
    "TMPDIR": "/dev/shm",
    "PYTHONHASHSEED": "7",
    "PANDAS_COPY_ON_WRITE": "1",
}
SHOW = """
import os, tempfile, time, locale
import tensorflow, keras, matplotlib, pandas
print(keras.backend.backend(), time.tzname, matplotlib.rcParams["backend"], locale.getlocale())
print(tempfile.gettempdir(), hash("a"), pandas.__name__)
names = "TF2_BEHAVIOR", "HDF5_PLUGIN_PATH", "TPU_ML_PLATFORM", "KMP_INIT_AT_FORK"
print([os.environ.get(name) for name in names])
"""
BACKEND = "import keras\nprint(keras.backend.backend())\n"
ASSIGNED = "import os\nos.environ['KERAS_BACKEND'] = 'jax'\n"
COMPUTED = "import os\nfor name in ['KERAS_BACKEND']:\n    os.environ[name] = 'jax'\n"

HELPER = """
import os
def load(name, value):
    os.environ[name] = value
"""
FOUND = "import sys\nsys.path.append('lib/site-packages')\nimport envhelper\n"
HIDDEN = {
    "a helper that is installed": FOUND + "envhelper.load({!r}, {!r})\n",
    "exec": 'exec(\'import os; os.environ["{}"] = "{}"\')\n',
    "another name": "import json, os\nenv = os.environ\nenv.update({{{!r}: {!r}}})\n",
    "bytes": "from os import environb as env, fsencode\nenv[fsencode({!r})] = fsencode({!r})\n",
}
"""How a program may set a variable so that its source does not show it."""

BLAS = """
import ctypes, os
import numpy as np
def count():
    maps = open("/proc/self/maps")
    [path] = {one.split()[-1] for one in maps if "/numpy.libs/libscipy_openblas" in one}
    return ctypes.CDLL(path).scipy_openblas_get_num_threads64_()
def multiplied():
    return (np.ones((200, 200)) @ np.ones((200, 200))).sum()
if os.fork() == 0:
    print(count(), multiplied(), flush=True)
    os._exit(0)
os.wait()
multiplied()
print(count(), len(os.listdir("/proc/self/task")), multiplied())
"""
"""How many threads NumPy's library has, in the process and in its fork."""

SETS = "in a way that cannot be known before it runs"

NAMES = (
    "secrets csv queue json copy socket requests keras tensorflow linecache logging "
    "math mwmagic token tempfile select uuid"
)


NATIVE = r"(?m)^(WARNING: All log messages|[IWE]0000 ).*\n"
"""What TensorFlow prints at any level, with the time."""


@pytest.fixture(scope="module")
def changing(hidden, tmp_path_factory):
    """Run programs in clusters whose warm process is started again for some of them."""
    ways = hidden(lambda: Ways(tmp_path_factory.mktemp("ways")))
    yield ways
    ways.close()


def test_variables_that_are_given_at_the_launch_are_read(changing):
    program = Program(SHOW, env=GIVEN, drop=NATIVE)
    changing.compare(program, warm=False)
    changing.compare(program, warm=True)


def test_variables_that_the_program_sets_are_read(changing):
    for warm in (False, True):
        done = changing.compare(Program(ASSIGNED + BACKEND, drop=NATIVE), warm=warm)
        assert done.output[-1] == "jax\n"
    for _ in range(2):
        changing.compare(Program(COMPUTED + BACKEND, drop=NATIVE), warm=False)


@pytest.mark.parametrize("how", HIDDEN)
def test_one_that_is_set_unseen_is_an_error_and_then_a_cold_start(ways, how):
    source = HIDDEN[how].format("KERAS_BACKEND", "jax") + f"# {how}\n" + BACKEND
    program = Program(source, files={"lib/site-packages/envhelper.py": HELPER}, drop=NATIVE)
    found = ways.outcomes(program)
    assert found["cold"] == found["plain"]
    assert found["plain"].output[-1] == "jax\n"
    assert found["warm"].code == 1
    assert f"KERAS_BACKEND {SETS}" in found["warm"].output[-1]
    ways.compare(program, warm=False)
    ways.compare(program, warm=False)


def test_one_that_changes_no_results_is_a_line_and_then_a_cold_start(ways):
    source = HIDDEN["another name"].format("TF_CPP_MIN_LOG_LEVEL", "1") + "import tensorflow\n"
    program = Program(source + "print(1)\n", drop=NATIVE)
    found = ways.outcomes(program)
    line, *rest = found["warm"].output
    assert line.startswith(f"mwmagic: main.py:3 sets TF_CPP_MIN_LOG_LEVEL {SETS}")
    assert rest == found["plain"].output
    ways.compare(program, warm=False)


@pytest.mark.parametrize(
    "program",
    [
        "import keras\n{}\n",
        "from tensorflow import nn as n\n{}\nimport keras\n",
        "from keras.layers import Dense\n{}\nimport keras\n",
        "def f():\n    import keras\n    {}\nf()\nimport keras\n",
    ],
)
def test_one_that_is_set_after_the_import_is_as_late_as_in_any_process(ways, program):
    late = "import envhelper; envhelper.load('KERAS_BACKEND', 'jax')"
    source = f"import os, sys\nsys.path.append('lib/site-packages')\n{program.format(late)}"
    source += "print(keras.backend.backend(), os.environ['KERAS_BACKEND'])\n"
    files = {"lib/site-packages/envhelper.py": HELPER}
    done = ways.compare(Program(source, files=files, drop=NATIVE))
    assert done.output[-1] == "tensorflow jax\n"


@pytest.mark.parametrize("name", ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"])
def test_numpy_computes_with_as_many_threads(changing, name):
    program = Program(BLAS, env={name: "2"}, drop=NATIVE)
    count = min(2, len(os.sched_getaffinity(0)))
    for warm in (False, True):
        done = changing.compare(program, warm=warm)
        assert done.output == [f"{count} 8000000.0\n", f"{count} {count} 8000000.0\n"]


def test_a_warm_process_that_a_signal_has_stopped_is_replaced_and_delays_nothing(changing):
    program = Program("print(1)\n", drop=NATIVE)
    changing.outcomes(program, warm=None)
    cluster = changing.clusters["warm"]
    eventually(lambda: cluster.machines[0].warm.state == "ready", "a warm process")
    first = cluster.machines[0].warm.pid
    os.kill(first, signal.SIGSTOP)
    began = time.monotonic()
    changing.compare(program, warm=False)
    assert time.monotonic() - began < 10, "a fork has 10 s to answer"
    why = "workers start cold: a signal had stopped the warm process"
    assert remarks(cluster.latest.status()) == [f"{why}; the next run of this program is warm."]
    eventually(lambda: cluster.machines[0].warm.pid not in (None, first), "another one")
    changing.compare(program)


def test_one_that_no_import_reads_costs_nothing(ways):
    ways.compare(Program("import os; print(os.environ['RATE'])", env={"RATE": "0.1"}))


@pytest.mark.parametrize("name", NAMES.split())
def test_a_module_beside_the_program_is_the_programs(ways, name):
    files = {f"{name}.py": "OWN = 1\n"}
    look = f"import {name}\nprint({name}.OWN, [one for one in vars({name}) if one[0] != '_'])"
    ways.compare(Program(look, files=files), warm=False)


CHILD = """
import tensorflow, mwmagic
print(mwmagic.OWN, mwmagic.__file__, flush=True)
"""
FIT = """
import multiprocessing, os, subprocess, sys
if __name__ == "__main__": import keras, numpy as np
import mwmagic, mwmagic.part
def shown(): print(mwmagic.OWN, mwmagic.part.OWN, mwmagic.__file__, flush=True)
if __name__ == "__main__":
    shown()
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1, "relu")])
    model.compile("sgd", "mse", metrics=["mae"])
    model.fit(np.ones((4, 1)), np.ones(4), verbose=0)
    model.save("model.keras")
    os.remove("model.keras")
    print(model.predict(np.zeros((1, 1)), verbose=0), flush=True)
    process = multiprocessing.get_context("spawn").Process(target=shown)
    process.start()
    process.join()
    print(process.exitcode, flush=True)
    print(subprocess.run([sys.executable, "child.py"]).returncode, flush=True)
    raise mwmagic.Mine("over")
"""


def test_a_package_named_as_this_one_is_the_programs_and_training_works(ways):
    own = "OWN = 2\nclass Mine(Exception): pass\n"
    files = {"mwmagic/__init__.py": own, "mwmagic/part.py": "OWN = 3\n", "child.py": CHILD}
    done = ways.compare(Program(FIT, files=files, drop=NATIVE), warm=False)
    assert done.output[-1] == "mwmagic.Mine: over\n"


def test_one_that_cannot_be_the_programs_is_reported(ways):
    files = {"mwmagic/__init__.py": "", "mwmagic/model.py": "OWN = 1\n"}
    found = ways.outcomes(Program("from mwmagic import model\n", files=files), warm=False)
    [line] = found["cold"].output
    assert line.startswith(
        "mwmagic: a worker imports its own mwmagic.model, not yours; rename the folder"
    )


def test_one_that_a_live_cell_sets_is_an_error_until_the_session_is_reset(
    ways, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)  # as this package beside a program makes each start cold
    ways.compare("print(1)")  # a warm process that the session's interpreter is forked from
    live = ways.clusters["warm"].live()
    try:
        with pytest.raises(WorkerFailed, match=f"<cell>:2 sets KERAS_BACKEND {SETS}"):
            live.run(ASSIGNED)
        live.reset()
        live.run(ASSIGNED)
        found = live.run("import keras\nkeras.backend.backend()").values()
        assert [answer.value["text/plain"] for answer in found] == ["'jax'"]
    finally:
        live.process.stop()
