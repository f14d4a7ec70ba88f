"""Live cells in a real JupyterLab and a real Notebook 7."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from cells import declare
from lab import PLACES
from processes import eventually

pytestmark = [pytest.mark.slow, pytest.mark.browser]

both = pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)

LIVE_CELLS = Path(__file__).parents[2] / "notebooks" / "live_cells.ipynb"
RANK = "%%mw_live\nimport os, time; rank = int(os.environ['MWMAGIC_TASK'][-1])"
ASK = "%%mw_live\nif rank:\n    name = input('name? ')\nelse:\n    time.sleep(600)"


def states(notebook):
    return notebook.board.locator(".mw-state").all_text_contents()


def answer(notebook, text):
    """Type a line where a cell asks for one."""
    line = notebook.see(notebook.page.locator(".jp-Stdin-input").last)
    line.fill(text)
    line.press("Enter")


@both
def test_a_session_is_shown_asked_and_interrupted(notebook, shot):
    notebook.write(declare(), RANK, "%mw_show", ASK).open().start()
    notebook.state("worker:1: In [4], asks for input")
    assert states(notebook) == ["In [4]", "In [4], asks for input"]
    times = notebook.board.locator(".mw-usage", has_text="for 0:")
    eventually(lambda: times.count() == len(states(notebook)), "how long they have been in it")
    shot(notebook, "live-busy", whole=True)
    answer(notebook, "Ada")
    eventually(lambda: states(notebook) == ["In [4]", "idle"], "the end of one task's cell")
    notebook.command("notebook:interrupt-kernel")
    notebook.see(notebook.page.get_by_text("interrupted on all tasks; all variables are kept"))
    eventually(lambda: states(notebook) == ["idle", "idle"], "the interrupt")
    assert notebook.button("Reset").get_attribute("title").endswith("all variables are lost")
    notebook.state("live, idle")
    shot(notebook, "live-idle", whole=True)
    notebook.sure("Reset")
    notebook.see(notebook.board.locator("header strong", has_text="attempt 2"))
    notebook.sure("Stop")
    notebook.state("stopped")
    assert notebook.button("New session").is_enabled()


@pytest.mark.tensorflow
@pytest.mark.timeout(600)
def test_the_notebook_trains_looks_breaks_debugs_and_plots(notebook, shot):
    shown = nbformat.read(LIVE_CELLS, 4)
    shown.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
    [debugs] = [cell for cell in shown.cells if cell.source == "# %mw_debug 1"]
    debugs.source = debugs.source.removeprefix("# ")
    nbformat.write(shown, notebook.path)
    notebook.open().start()
    prompt = notebook.page.locator(".jp-Stdin-prompt", has_text="[1] (Pdb)")
    notebook.see(prompt.last, timeout=300_000)
    shot(notebook, "live-debugger", whole=True)
    answer(notebook, "p len(batch), rank")
    notebook.see(notebook.page.get_by_text("[1] (64, 1)"))
    notebook.see(prompt.last)
    answer(notebook, "q")

    def outputs():
        """Return the outputs of the saved notebook, and its sources."""
        return [(cell.source, cell.get("outputs", [])) for cell in notebook.save().cells]

    def text():
        return "".join(one.get("text", "") for _, each in outputs() for one in each)

    eventually(lambda: "nothing is left running" in text(), text)
    [plotted] = [each for source, each in outputs() if "plt.plot" in source]
    assert [one.data["image/png"][:4] for one in plotted] == ["iVBO"]
    errors = [one.evalue for _, each in outputs() for one in each if one.output_type == "error"]
    assert [one.partition(" raised ")[2].partition(":")[0] for one in errors] == [
        "ZeroDivisionError",
        "ValueError",
    ]
