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
