"""The notebook on PyTorch: trained where that can be had, else as far as it goes without."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "notebooks" / "torch_ddp.ipynb"
NBVAL = ("pytest", "--nbval-lax", "--nbval-cell-timeout=300", "-p", "no:cacheprovider")
TAG = "torch"
"""What the cells are tagged with that need it."""


def environment_with_torch():
    """Return variables with which PyTorch is found: here, or in the folder that `make` fills."""
    if importlib.util.find_spec("torch") is not None:
        return dict(os.environ)
    prepared = ROOT / ".torch"
    return {**os.environ, "PYTHONPATH": str(prepared)} if (prepared / "torch").is_dir() else None


def without_torch():
    """Return the notebook without the cells that need it."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    kept = [cell for cell in notebook.cells if TAG not in cell.metadata.get("tags", ())]
    assert len(kept) < len(notebook.cells)
    notebook.cells = kept
    return nbformat.writes(notebook)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_nbval_passes(tmp_path, nothing_survives):
    env = environment_with_torch()
    (tmp_path / NOTEBOOK.name).write_text(NOTEBOOK.read_text() if env else without_torch())
    command = [sys.executable, "-m", *NBVAL, NOTEBOOK.name]
    done = subprocess.run(
        command, check=False, cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    if not env:
        pytest.skip("the processes find each other; training was not tried, without PyTorch")
