"""Live cells in a real JupyterLab and a real Notebook 7."""

from __future__ import annotations

import pytest
from cells import declare
from lab import PLACES
from processes import eventually

pytestmark = [pytest.mark.slow, pytest.mark.browser]

both = pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)

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
