"""The pages whose blocks are executed in order, as the cells of a notebook."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import nbformat
import pytest
from jupyter_core.utils import run_sync
from nbclient import NotebookClient

DOCS = Path(__file__).parents[2] / "docs" / "use"
BLOCK = re.compile(
    r"^```(python|shell)(?: (raises|restarted))?\n(.*?)^```$", re.MULTILINE | re.DOTALL
)


def cells(page):
    """Return a page's blocks as code cells; each knows what is special about it."""
    found = []
    for language, what, text in BLOCK.findall((DOCS / page).read_text(encoding="utf-8")):
        source = text.rstrip("\n") if language == "python" else f"%%bash -e\n{text.rstrip()}"
        tags = ["raises-exception"] if what == "raises" else []
        cell = nbformat.v4.new_code_cell(source, metadata={"tags": tags, "what": what})
        found.append(cell)
    return found


def expected(cell):
    return cell.metadata["what"] == "raises"


def failed(cell):
    return any(output.output_type == "error" for output in cell.outputs)


@pytest.mark.slow
@pytest.mark.tensorflow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", ["agents.md", "experiments.md", "guide.md"])
def test_every_block_does_what_the_page_says(page, tmp_path, monkeypatch, nothing_survives):
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    kernel = {"kernelspec": {"name": "python3", "display_name": "", "language": "python"}}
    notebook = nbformat.v4.new_notebook(cells=cells(page), metadata=kernel)
    where = {"metadata": {"path": str(tmp_path)}}
    client = NotebookClient(notebook, timeout=300, kernel_name="python3", resources=where)
    with client.setup_kernel():
        for number, cell in enumerate(notebook.cells):
            if cell.metadata["what"] == "restarted":
                run_sync(client.km.restart_kernel)(now=True)
                run_sync(client.kc.wait_for_ready)(timeout=60)
            client.execute_cell(cell, number)
            assert failed(cell) == expected(cell), cell
