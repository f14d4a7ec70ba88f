"""Executes notebooks and stores their outputs: ``make notebooks``, or this with their names."""

from __future__ import annotations

import json
import re
import socket
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
LIVE = "application/vnd.jupyter.widget-view+json"
CELL_SECONDS = 300
SCRIPT = re.compile(r"<script.*?</script>", re.DOTALL)
"""What lets a table be sorted: 27 kB in each output, and hosts of notebooks do not run it."""


def executed(path):
    """Return a notebook with the outputs of another execution."""
    with tempfile.TemporaryDirectory(prefix="mw-", dir="/tmp") as folder:
        notebook = nbformat.read(path, as_version=4)
        where = {"metadata": {"path": folder}}
        NotebookClient(
            notebook,
            timeout=CELL_SECONDS,
            kernel_name="python3",
            resources=where,
            store_widget_state=False,
            record_timing=False,
        ).execute()
        for cell in notebook.cells:
            if "outputs" in cell:
                # TensorFlow's notices are no result.
                cell.outputs = [one for one in cell.outputs if one.get("name") != "stderr"]
            for output in cell.get("outputs", ()):
                data = output.get("data", {})
                data.pop(LIVE, None)
                if "text/html" in data:
                    data["text/html"] = SCRIPT.sub("", data["text/html"])
        text = nbformat.writes(notebook)
    for here, name in ((folder, "."), (sys.prefix, "/usr"), (socket.gethostname(), "localhost")):
        text = text.replace(json.dumps(here)[1:-1], name)
    return text


def main():
    for name in sys.argv[1:] or sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb")):
        path = NOTEBOOKS / f"{name}.ipynb"
        path.write_text(executed(path) + "\n")
        print(name, flush=True)


if __name__ == "__main__":
    main()
