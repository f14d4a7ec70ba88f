"""Notebooks in one folder, of which each leaves its warm cluster to the next one."""

from __future__ import annotations

import re
import tempfile
from functools import partial
from types import SimpleNamespace

import nbformat
import pytest
from executing import NBVAL, NOTEBOOKS, SHARING, execute
from processes import command, eventually, labelled

LEFT = r"cluster +2 tasks +detached, idle since \S+, \S.* +run \d+: .*\n +\S+\n"

pytestmark = [pytest.mark.slow, pytest.mark.tensorflow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def common(_apart, tmp_path_factory):
    """The notebooks' folder, and what executes modules there: they find one cluster."""
    folder, before = tmp_path_factory.mktemp("common"), set(labelled())
    with tempfile.TemporaryDirectory(prefix="mw-", dir="/tmp") as sockets:
        run = partial(execute, folder, TMPDIR=sockets)
        yield SimpleNamespace(folder=folder, execute=run, agents=set())
        said, _ = run("mwmagic.cli", "stop")
        assert said.startswith("ended cluster of "), said
        eventually(lambda: not set(labelled()) - before, "end of all processes")


@pytest.mark.parametrize("name", SHARING)
def test_nbval_passes_on_the_cluster_of_the_notebook_before(name, common):
    notebook = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    last = max(at for at, cell in enumerate(notebook.cells) if cell.cell_type == "code")
    assert "%mw_stop --cluster" in notebook.cells[last].source
    notebook.cells[last] = nbformat.v4.new_code_cell("%mw_cluster 2 --detach")
    nbformat.write(notebook, common.folder / f"{name}.ipynb")
    said, succeeded = common.execute(*NBVAL, f"{name}.ipynb")
    assert succeeded, said
    said, _ = common.execute("mwmagic.cli", "ps")
    assert re.fullmatch(LEFT, said), said
    common.agents |= {pid for pid in labelled() if "-S" in command(pid).split()}
    assert len(common.agents) == 1
