"""The files that name the oldest Python agree on it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TOLD = {
    "pyproject.toml": (r'(?:requires-python = ">=|\npython_version = ")([\d.]+)"', "3.10"),
    # The latest Keras that there is for 3.10 cannot be repaired.
    "README.md": (r"Python ([\d.]+) or later", "3.11"),
    "Makefile": (r"Python ([\d.]+)(?:\+| or later)", "3.11"),
}


@pytest.mark.parametrize("name", TOLD)
def test_the_oldest_python_is_the_same_everywhere(name):
    pattern, oldest = TOLD[name]
    assert {*re.findall(pattern, (ROOT / name).read_text())} == {oldest}
