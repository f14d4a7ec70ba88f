"""The notebook ``many_machines`` on a real Slurm; `tests/notebooks` runs it without one."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from processes import eventually

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "many_machines.ipynb"


def printed(cell):
    return "".join(one.get("text", "") for one in cell.get("outputs", ()))


@pytest.mark.slow
@pytest.mark.tensorflow
@pytest.mark.usefixtures("nothing_survives")
def test_the_notebook_trains_on_two_nodes(slurm, tmp_path):
    eventually(slurm.idle, "idle nodes")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    where = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources=where).execute()
    text = "\n".join(map(printed, notebook.cells))
    assert "--engine slurm --nodes 2" in text
    hosts = set(re.findall(r"^.*\bon (\S+)$", text, re.MULTILINE))
    assert hosts < {host.name for host in slurm.network.hosts}
    assert len(hosts) == 2
    eventually(lambda: not slurm.jobs(), "end of the job")
