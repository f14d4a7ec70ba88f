"""The quickstart, executed the ways that notebooks are executed without a browser."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

pytestmark = pytest.mark.slow

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
CRASH = [
    "%load_ext mwmagic",
    "%mw_cluster 2 --no-warm",
    """%%mw_worker
import json, os, time
def train():
    raise ValueError("the learning rate must be positive")
if json.loads(os.environ["TF_CONFIG"])["task"]["index"] == 1:
    train()
time.sleep(600)
""",
    "%mw_wait",
    "print('never')",
]
CAUSE = (
    "WorkerFailed: run 1 failed: worker:1 exited with code 1: "
    "ValueError: the learning rate must be positive"
)


def execute(directory, *arguments):
    """Run a module with this interpreter; return what it said and whether it succeeded."""
    command = [sys.executable, "-m", *arguments]
    done = subprocess.run(command, check=False, cwd=directory, capture_output=True, text=True)
    return done.stdout + done.stderr, done.returncode == 0


NBVAL = ("pytest", "--nbval-lax", "--nbval-cell-timeout=240", "-p", "no:cacheprovider")


@pytest.mark.tensorflow
def test_nbval_passes_the_quickstart(tmp_path):
    path = tmp_path / "quickstart.ipynb"
    path.write_bytes((NOTEBOOKS / path.name).read_bytes())
    said, succeeded = execute(tmp_path, *NBVAL, path.name)
    assert succeeded, said


@pytest.mark.tensorflow
def test_the_demonstration_prints_each_workers_last_metrics(tmp_path):
    said, succeeded = execute(tmp_path, "mwmagic.cli", "demo")
    assert succeeded, said
    both = [line.split() for line in said.splitlines() if line.startswith("  worker:")]
    assert [words[0] for words in both] == ["worker:0", "worker:1"]
    assert both[0][1:] == both[1][1:], "both report the same metrics"
    assert "jupyter lab mwmagic-demo/quickstart.ipynb" in said
    assert "0000" not in said, "no notices of TensorFlow"


@pytest.fixture
def crashing(tmp_path):
    """A notebook whose second worker fails."""
    cells = [nbformat.v4.new_code_cell(source) for source in CRASH]
    kernel = {"kernelspec": {"name": "python3", "display_name": "", "language": "python"}}
    path = tmp_path / "crash.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), path)
    return path


def test_a_crashing_worker_fails_nbclient(crashing):
    notebook = nbformat.read(crashing, as_version=4)
    client = NotebookClient(notebook, resources={"metadata": {"path": str(crashing.parent)}})
    with pytest.raises(CellExecutionError) as caught:
        client.execute()
    assert CAUSE in str(caught.value)
    assert 'raise ValueError("the learning rate must be positive")' in str(caught.value)
    assert notebook.cells[-1].outputs == []


@pytest.mark.parametrize(
    "command",
    [(*NBVAL, "crash.ipynb"), ("papermill", "--no-progress-bar", "crash.ipynb", "out.ipynb")],
    ids=["nbval", "papermill"],
)
def test_a_crashing_worker_fails_other_runners(crashing, command):
    said, succeeded = execute(crashing.parent, *command)
    assert not succeeded
    assert CAUSE in said
