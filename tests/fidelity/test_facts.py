"""A worker is what ``python main.py`` is, as far as programs see."""

from __future__ import annotations

import pytest
from compare import Program
from facts import FRAMEWORKS, PYTHON, SIGNALS
from programs import HELPER

pytestmark = [pytest.mark.slow, pytest.mark.tensorflow]

BESIDE = {
    "data.txt": "data",
    "helper.py": HELPER,
    "broken.py": "def f(:\n    pass\n",
    "pack/__init__.py": "up = 1\n",
    "pack/inner.py": "from . import up\n",
}

TIME = r"(?<=Ran 1 test) in [\d.]+s"


@pytest.mark.parametrize("name", SIGNALS)
def test_a_program_ends_the_same(ways, name):
    ways.compare(Program(SIGNALS[name]))


@pytest.mark.parametrize("name", PYTHON)
def test_a_program_sees_the_same(ways, name):
    ways.compare(Program(PYTHON[name], ("a", "--b"), files=BESIDE, drop=TIME))


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_program_of_a_framework_does_the_same(ways, name):
    ways.compare(Program(FRAMEWORKS[name]))


def test_a_warm_worker_is_shown_as_the_command_that_it_is(ways):
    show = "from pathlib import Path; print(Path('/proc/self/cmdline').read_bytes())"
    found = ways.outcomes(Program(show, ("a b", "", "é")))
    assert found["warm"] == found["plain"]


def test_each_worker_has_its_own_key_for_its_processes(ways):
    keep = "import multiprocessing as m\nopen('key', 'wb').write(m.current_process().authkey)\n"
    found = [ways.outcomes(Program(keep))["warm"].files["key"] for _ in range(2)]
    assert [len(one) for one in found] == [32, 32]
    assert found[0] != found[1]
