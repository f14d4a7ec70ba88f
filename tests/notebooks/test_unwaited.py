"""Notebooks that end before their runs do, under the programs that execute notebooks."""

from __future__ import annotations

import re
import subprocess
import sys

import nbformat
import pytest

from mwmagic import clusters

pytestmark = pytest.mark.slow

DECLARE = "%load_ext mwmagic\n%mw_cluster 1 --no-warm --grace 0.2"
SLEEP = "%%mw_worker\nimport time\ntime.sleep(600)"
RAISE = "%%mw_worker -o run\nraise ValueError('\\x1b[2Jthe rate must be positive')"
OVER = "import time\nwhile not run.over:\n    time.sleep(0.01)"
ADVICE = "end the notebook with `%mw_wait`"
LEFT = f"The run is stopped when the kernel ends; {ADVICE}, which waits for the run."
GOING = rf"mwmagic: the kernel ended while run 2 was going \([\w :]+\), and stopped it; {ADVICE}"
UNSEEN = "mwmagic: run 1 failed: worker:0 exited with code 1: ValueError: the rate must be positive"
SILENT = "nothing waited for it, so the notebook did not fail with it"
RUNNERS = {
    "nbclient": ("jupyter", "execute", "book.ipynb", "--output", "out.ipynb"),
    "nbconvert": ("nbconvert", "--to", "notebook", "--execute", "book.ipynb", "--output", "out"),
    "papermill": ("papermill", "--no-progress-bar", "book.ipynb", "out.ipynb"),
}


@pytest.fixture
def execute(tmp_path, nothing_survives):
    """Execute a notebook of these cells; return what was said beside it, and its outputs."""

    def execute(runner, *cells):
        made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(one) for one in cells])
        made.metadata["kernelspec"] = {"name": "python3", "display_name": "", "language": "python"}
        nbformat.write(made, tmp_path / "book.ipynb")
        command = [sys.executable, "-m", *RUNNERS[runner]]
        done = subprocess.run(command, check=False, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        written = nbformat.read(tmp_path / "out.ipynb", as_version=4)
        outputs = [one for cell in written.cells for one in cell.outputs]
        return done.stderr, [one.data for one in outputs if "text/html" in one.get("data", {})]

    return execute


@pytest.mark.parametrize("runner", RUNNERS)
def test_what_nothing_waited_for_is_told_of_in_the_notebook_and_beside_it(execute, runner):
    said, [failed, going] = execute(runner, DECLARE, RAISE, OVER, SLEEP)
    assert failed["text/plain"] == (
        "run 1: failed: worker:0 exited with code 1\n  worker:0  exited with code 1"
    )
    assert "the rate must be positive" in failed["text/html"]
    assert f"{UNSEEN}; {SILENT}; {ADVICE}" in said
    assert going["text/plain"].splitlines()[-1] == LEFT
    assert LEFT in going["text/html"]
    assert re.search(GOING, said)
    assert "\x1b" not in said


def test_runs_waited_for_stopped_or_detached_are_not_reported(execute, tmp_path):
    seen = "try:\n    %mw_wait\nexcept Exception as error:\n    print(type(error).__name__)"
    kept = "%mw_cluster 1 --no-warm --name kept --detach"
    said, shown = execute("nbclient", DECLARE, RAISE, seen, SLEEP, "%mw_stop", kept, SLEEP)
    [detached] = clusters(tmp_path)
    detached.shutdown()
    assert "mwmagic:" not in said
    assert LEFT not in shown[-1]["text/plain"]
