"""A program imports what it would under ``python main.py``."""

from __future__ import annotations

import pytest
from compare import Program, Ways

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

NAMES = (
    "secrets csv queue json copy socket requests keras tensorflow linecache logging "
    "math token tempfile select uuid"
)


NATIVE = r"(?m)^(WARNING: All log messages|[IWE]0000 ).*\n"
"""What TensorFlow prints at any level, with the time."""


@pytest.fixture(scope="module")
def changing(_apart, tmp_path_factory):
    """Run programs in clusters whose warm process is started again for some of them."""
    ways = Ways(tmp_path_factory.mktemp("ways"))
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


def test_one_that_no_import_reads_costs_nothing(ways):
    ways.compare(Program("import os; print(os.environ['RATE'])", env={"RATE": "0.1"}))


@pytest.mark.parametrize("name", NAMES.split())
def test_a_module_beside_the_program_is_the_programs(ways, name):
    files = {f"{name}.py": "OWN = 1\n"}
    look = f"import {name}\nprint({name}.OWN, [one for one in vars({name}) if one[0] != '_'])"
    ways.compare(Program(look, files=files), warm=False)
