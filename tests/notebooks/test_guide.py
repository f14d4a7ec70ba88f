"""The pages whose blocks are executed in order, as the cells of notebooks."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import nbformat
import pytest
from jupyter_core.utils import run_sync
from nbclient import NotebookClient

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(
    r"^```(python|shell)(?: (raises|restarted))?\n(.*?)^```$", re.MULTILINE | re.DOTALL
)


NOTEBOOKS = {
    "agents": ["use/agents.md"],
    "experiments": [f"use/{one}.md" for one in ("experiments", "sweeps", "trackers", "scaling")],
    "guide": [
        "start/notebook.md",
        *(f"use/{one}.md" for one in ("guide", "tasks", "faults", "shapes", "resources", "detach")),
        "use/scripts.md",
    ],
}
"""The pages whose blocks continue each other."""


def cells(pages):
    """Return the pages' blocks as code cells; each knows what is special about it."""
    found = []
    whole = "\n".join((DOCS / page).read_text(encoding="utf-8") for page in pages)
    for language, what, text in BLOCK.findall(whole):
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
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_every_block_does_what_the_page_says(name, tmp_path, monkeypatch, nothing_survives):
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    kernel = {"kernelspec": {"name": "python3", "display_name": "", "language": "python"}}
    notebook = nbformat.v4.new_notebook(cells=cells(NOTEBOOKS[name]), metadata=kernel)
    where = {"metadata": {"path": str(tmp_path)}}
    client = NotebookClient(notebook, timeout=300, kernel_name="python3", resources=where)
    with client.setup_kernel():
        for number, cell in enumerate(notebook.cells):
            if cell.metadata["what"] == "restarted":
                run_sync(client.km.restart_kernel)(now=True)
                run_sync(client.kc.wait_for_ready)(timeout=60)
            client.execute_cell(cell, number)
            assert failed(cell) == expected(cell), cell
