"""The notebook on PyTorch: trained where that can be had, else as far as it goes without."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import nbformat
import pytest
from executing import NBVAL, NOTEBOOKS, execute

PREPARED = Path(__file__).parents[2] / ".torch"
NOTEBOOK = NOTEBOOKS / "torch_ddp.ipynb"
TAG = "torch"
"""What the cells are tagged with that need it."""


def environment_with_torch():
    """Return variables with which PyTorch is found: here, or in the folder that `make` fills."""
    if importlib.util.find_spec("torch") is not None:
        return {}
    return {"PYTHONPATH": str(PREPARED)} if (PREPARED / "torch").is_dir() else None


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
    absent = env is None
    (tmp_path / NOTEBOOK.name).write_text(without_torch() if absent else NOTEBOOK.read_text())
    said, succeeded = execute(tmp_path, *NBVAL, NOTEBOOK.name, **(env or {}))
    assert succeeded, said
    if absent:
        pytest.skip("the processes find each other; training was not tried, without PyTorch")
