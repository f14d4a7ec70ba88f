"""The dashboard with a real two-worker training."""

from __future__ import annotations

import json
import re
from collections import Counter
from functools import partial

import cells
import pytest
from processes import eventually

pytestmark = [pytest.mark.slow, pytest.mark.browser]


@pytest.mark.tensorflow
@pytest.mark.timeout(600)
def test_a_real_training_with_two_workers(notebook, shot):
    declare = "%load_ext mwmagic\n%mw_cluster 2 --quiet"
    notebook.write(declare, cells.TRAINING).open().run()
    epochs = notebook.board.locator(
        ".mw-progress", has_text=re.compile(r"epoch 2/3 · step \d+/150")
    )
    epochs.first.wait_for(timeout=240_000)
    shot(notebook, "training")
    notebook.state("finished", 240_000)
    places = notebook.board.locator(".mw-progress").all_text_contents()
    assert places == ["epoch 3/3 · step 150/150"] * 2
    chart = notebook.board.locator(".mw-plot").first
    says = partial(chart.get_attribute, "aria-label")
    told = r"loss: \[0-1\] · step 450: \S+"
    eventually(
        lambda: re.fullmatch(told, says() or ""),
        lambda: f"the loss of every worker at the end, in the chart that says {says()}",
    )
    (run,) = notebook.folder.glob(".mwmagic/runs/*/metrics.jsonl")
    entries = map(json.loads, run.read_text().splitlines())
    epochs = Counter(
        (entry["epoch"], entry["metrics"]["loss"])
        for entry in entries
        if entry.get("final") and entry["source"] == "report" and "loss" in entry["metrics"]
    )
    assert list(epochs.values()) == [2, 2, 2], epochs
    for index in (0, 1):
        lines = notebook.lines(f"worker:{index}")
        assert [line for line in lines if line.startswith("Epoch")] == [
            f"Epoch {epoch}/3" for epoch in (1, 2, 3)
        ]
    notices = notebook.board.locator(".mw-noise")
    assert notices.count() > 0, "TensorFlow's notices are folded"
    assert not notices.first.is_visible()
    chart.hover(position={"x": 200, "y": 60})
    notebook.see(chart.locator(".mw-tip", has_text="[0-1]"))
    for theme in ("Dark", "Light"):
        notebook.theme(f"JupyterLab {theme}")
        shot(notebook, f"trained-{theme.lower()}")
    speed = notebook.board.locator("figure").nth(1)
    speed.get_by_label("Metric").select_option("memory (MB)")
    says = partial(speed.locator(".mw-plot").get_attribute, "aria-label")
    eventually(lambda: re.match(r"memory \(MB\): worker:0 · seconds [\d.]+: ", says() or ""), says)
    shot(notebook, "used-memory")
    saved = notebook.save().cells[1].outputs[-1].data["text/html"]
    assert re.search(r"CPUs in use: [\d.]+ at the start, [\d.]+ at the end; memory \(MB\): ", saved)
