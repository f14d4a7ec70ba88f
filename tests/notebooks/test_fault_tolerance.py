"""The notebook on lost workers: each way to save resumes at the step that it should."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "fault_tolerance.ipynb"
NBVAL = ("pytest", "--nbval-lax", "--nbval-cell-timeout=240", "-p", "no:cacheprovider")


@pytest.mark.slow
@pytest.mark.tensorflow
@pytest.mark.timeout(900)
def test_nbval_passes_the_notebook(tmp_path, nothing_survives):
    path = tmp_path / NOTEBOOK.name
    path.write_bytes(NOTEBOOK.read_bytes())
    command = [sys.executable, "-m", *NBVAL, path.name]
    done = subprocess.run(command, check=False, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
