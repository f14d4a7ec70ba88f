"""Notes, tags, removals and repetitions of recorded runs, in a notebook."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.slow

CELL = "%%mw_worker --wait {options}\nimport mwmagic.worker\nunits = 64\nprint(units)\n"
CELL += "mwmagic.worker.report(val_loss=1 / units)\n"


def test_a_notebook_writes_to_runs_and_repeats_them(kernel):
    assert kernel.run("%mw_cluster 1 --no-warm --grace 0.2").error is None
    assert kernel.run(CELL.format(options="-p units=32")).error is None
    second = kernel.run(CELL.format(options="-p units=128"))
    changed = "changed since run 1: units 32 → 128; best val_loss 0.03125 → 0.007812 (better), "
    assert changed in second.text
    assert kernel.run('%mw_note 1 "the first"').text.strip() == "run 1: the first"
    assert kernel.run("%mw_tag 1 baseline").text.strip() == "run 1: baseline"
    third = kernel.run("%mw_rerun 2 -p units=256 --wait")
    assert "changed since run 1 (baseline): units 32 → 256" in third.text
    assert kernel.run("%mw_logs 0").text.strip() == "256"
    changed = "changed since run 1 (baseline): units 32 → 256"
    for cell in ("%mw_show 3", "from mwmagic import runs; runs()[2]"):
        kernel.run(cell)
        shown = kernel.shown.pop(None)
        state, _, line = shown["text/plain"].splitlines()
        assert (state, line.partition(";")[0]) == ("run 3: finished", changed)
        assert f"<p>{changed}; " in shown["text/html"]
    kernel.run("%mw_show 1")
    assert kernel.shown.pop(None)["text/plain"].splitlines()[2:] == [
        "tags: baseline",
        "note: the first",
    ]
    wrong = kernel.run("%mw_rerun 1 --workers 2")
    assert wrong.error.startswith("ClusterError: run 1 needs 2 tasks (worker:0 to worker:1)")
    assert kernel.run("%mw_rerun 1 -p unit=3").error.startswith("BadArguments: ")
    assert "this would remove 2 runs" in kernel.run("%mw_gc --keep 0").text
    assert kernel.run("%mw_gc --keep 0 --yes").text.startswith("removed 2 runs")
    kernel.run("%mw_runs -o table")
    assert "the first" in kernel.run("print(table)").text
