"""The dashboard with a real two-worker training, and in Notebook 7."""

from __future__ import annotations

import re

import cells
import pytest
from processes import eventually

pytestmark = [pytest.mark.slow, pytest.mark.browser]

LOADED = "image => image.complete && image.naturalWidth > 0"


@pytest.mark.tensorflow
def test_a_real_training_with_two_workers(notebook, shot):
    declare = "%load_ext mwmagic\n%mw_cluster 2 --quiet"
    notebook.write(declare, cells.TRAINING).open().run()
    epochs = notebook.board.locator(".mw-place", has_text=re.compile(r"epoch 2/3 · step \d+/150"))
    epochs.first.wait_for(timeout=120_000)
    shot(notebook, "training")
    notebook.state("finished", 60_000)
    places = notebook.board.locator(".mw-place").all_text_contents()
    assert places == ["epoch 3/3 · step 150/150"] * 2
    chart = notebook.board.locator("canvas").first
    told = re.fullmatch(
        r"loss: worker:0 (\S+), worker:1 (\S+)", chart.get_attribute("aria-label") or ""
    )
    assert told, chart.get_attribute("aria-label")
    assert told[1] == told[2], "every worker reports the same loss"
    for index in (0, 1):
        lines = notebook.lines(f"worker:{index}")
        assert [line for line in lines if line.startswith("Epoch")] == [
            f"Epoch {epoch}/3" for epoch in (1, 2, 3)
        ]
    assert notebook.board.locator("details.mw-fold").count() > 0, "TensorFlow's notices are folded"
    chart.hover(position={"x": 200, "y": 60})
    notebook.see(notebook.board.locator(".mw-tip", has_text="worker:1"))
    shot(notebook, "trained")
    notebook.save()
    for trusted in (True, False):
        notebook.reopen(trusted=trusted)
        image = notebook.see(notebook.page.locator(".mwmagic-static img"))
        eventually(lambda shown=image: shown.evaluate(LOADED), "the picture of the loss")
        shot(notebook, f"trained-reopened-{'trusted' if trusted else 'untrusted'}", whole=True)


def test_notebook_7(notebook, shot):
    notebook.write(cells.declare(), cells.counting(100, 0.02), "%mw_wait")
    notebook.open("notebooks").run()
    notebook.state("finished")
    expected = [f"worker:{index}" for index in (0, 1)]
    for task in expected:
        eventually(lambda task=task: len(notebook.lines(task)) == 100, "all lines")
    shot(notebook, "notebook-7", whole=True)
