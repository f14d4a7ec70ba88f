"""The README: its four cells as a notebook, then the same from a script and from a shell."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(?:python)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CAUGHT = """from mwmagic import WorkerFailed
try:
    %mw_wait --quiet
except WorkerFailed as error:
    print(error)"""
FAILED = "worker:1 exited with code 1: ValueError: the learning rate must be positive"
COMMAND = "mwmagic run -n 2 main.py --epochs 3\n"

pytestmark = [pytest.mark.slow, pytest.mark.tensorflow]


def blocks():
    return BLOCK.findall((ROOT / "README.md").read_text(encoding="utf-8"))


@pytest.mark.timeout(600)
def test_the_four_cells_run_as_they_stand_without_a_network(
    tmp_path, monkeypatch, nothing_survives
):
    monkeypatch.setenv("no_proxy", "")
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # nothing is downloaded
    sources = [text.rstrip("\n") for text in blocks()[:4]]
    cells = [
        nbformat.v4.new_code_cell(source) for source in [*sources, CAUGHT, "%mw_logs 0 --run 1"]
    ]
    where = {"metadata": {"path": str(tmp_path)}}
    notebook = nbformat.v4.new_notebook(cells=cells)
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources=where).execute()
    assert "Epoch 5/5" in str(notebook.cells[-1].outputs)
    assert FAILED in str(notebook.cells[-2].outputs)
    [history] = [one["data"]["text/plain"] for one in notebook.cells[2].outputs if "data" in one][
        -1:
    ]
    assert ast.literal_eval(history)["accuracy"][-1] > 0.9


@pytest.fixture
def program(tmp_path):
    """A program that says what it is given, where the README has ``main.py``."""
    (tmp_path / "main.py").write_text("import sys; print('given', *sys.argv[1:])\n")
    return tmp_path


def test_the_script_runs_the_program_on_every_task(program, nothing_survives):
    [script] = [text for text in blocks() if "from mwmagic import Cluster" in text]
    subprocess.run([sys.executable, "-c", script], cwd=program, check=True, timeout=120)
    logs = sorted(program.glob(".mwmagic/runs/*/**/*.log"))
    assert ["given --epochs 3" in log.read_text() for log in logs] == [True, True], logs


def test_the_command_runs_the_program_on_every_task(program, nothing_survives):
    assert COMMAND in blocks()
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        COMMAND.split(),
        cwd=program,
        env={**os.environ, "PATH": path},
        check=True,
        timeout=120,
        capture_output=True,
        text=True,
    )
    assert done.stdout.count("given --epochs 3") == 2
