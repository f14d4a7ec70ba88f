"""The files that name the oldest Python agree on it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TOLD = {
    "pyproject.toml": r'(?:requires-python = ">=|\npython_version = ")([\d.]+)"',
    "README.md": r"Python ([\d.]+) or later",
    "Makefile": r"Python ([\d.]+)(?:\+| or later)",
}


@pytest.mark.parametrize("name", TOLD)
def test_the_oldest_python_is_the_same_everywhere(name):
    assert {*re.findall(TOLD[name], (ROOT / name).read_text())} == {"3.10"}
