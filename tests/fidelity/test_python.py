"""A worker is what ``python main.py`` is, as far as Python itself goes."""

from __future__ import annotations

import pytest
from compare import Program
from programs import HELPER, PROGRAMS

pytestmark = [pytest.mark.slow, pytest.mark.tensorflow]

BESIDE = {"data.txt": "data", "helper.py": HELPER, "broken.py": "def f(:\n    pass\n"}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_script_means_the_same(ways, name):
    ways.compare(Program(PROGRAMS[name], ("a", "--b"), files=BESIDE))
