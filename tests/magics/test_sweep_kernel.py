"""A sweep in a notebook: the last cell's program, a table that is kept, Ctrl-C and a new kernel."""

from __future__ import annotations

import pytest
from processes import eventually

from mwmagic.experiments.sweep import sweeps
from mwmagic.record import runs

pytestmark = pytest.mark.slow

CELL = """%%mw_worker --wait
import time
from pathlib import Path
import mwmagic.worker
units = 64
while Path("hold").exists():
    mwmagic.worker.report(waits=1)
    time.sleep(0.05)
mwmagic.worker.report(val_loss=1 / units)
"""


def test_a_notebook_sweeps_its_last_cell(kernel, tmp_path):
    assert kernel.run("%mw_cluster 1 --no-warm --grace 0.2").error is None
    assert kernel.run("%mw_sweep units=1,2").error.startswith("NoRun: ")
    assert kernel.run(CELL).error is None
    swept = kernel.run("%mw_sweep units=32,128 -o sweep")
    assert swept.error is None
    *_, shown = [one for one in swept.shown.values() if "text/html" in one]
    assert "best: trial 2 (run 3; units 128), val_loss 0.007812" in shown["text/plain"]
    assert "best: trial 2" in shown["text/html"]
    assert kernel.run("print(sweep.best().number)").text.strip() == "3"
    assert "2 trials: 2 finished" in str(kernel.run("%mw_sweep --resume").shown)
    for again in ("%mw_sweep --show", "sweep", "import mwmagic; mwmagic.sweeps()[0]"):
        kernel.shown.clear()
        [bundle] = kernel.run(again).shown.values()
        assert "best: trial 2" in bundle["text/plain"]
        assert "data:image/svg+xml" in bundle["text/html"]
    rows = kernel.run("%mw_sweep --export csv").text.splitlines()
    assert [row[:13] for row in rows] == ["trial,repeat,", "1,0,finished,", "2,0,finished,"]
    refused = kernel.run("%mw_sweep units=1 --show").error
    assert refused == "BadArguments: --show and --export run nothing: leave out units=1"
    assert "did you mean units?" in kernel.run("%mw_sweep unit=1,2").error
    (tmp_path / "hold").touch()
    assert kernel.run(CELL.replace(" --wait", "")).error is None
    busy = kernel.run("%mw_sweep units=1,2").error
    assert busy.startswith("RunActive: the cluster is busy with run 4 (")
    assert len(sweeps(tmp_path)) == 1


def test_a_new_kernel_says_that_a_sweep_is_not_over(kernel, tmp_path):
    assert kernel.run("%mw_cluster 1 --no-warm --grace 0.2").error is None
    assert kernel.run(CELL).error is None
    (tmp_path / "hold").touch()
    kernel.send("%mw_sweep units=1,2")
    eventually(lambda: len(runs(tmp_path)) == 2 and runs(tmp_path)[1].metrics())
    kernel.restart(now=True)
    (tmp_path / "hold").unlink()
    trials = sweeps(tmp_path)[0].path / "trials.jsonl"
    trials.rename(tmp_path / "away")
    assert kernel.run("%mw_cluster 1 --no-warm --grace 0.2").error is None
    assert "the trials of sweep 1 are gone from" in kernel.run("%mw_sweep --resume").error
    (tmp_path / "away").rename(trials)
    again = kernel.run("%mw_cluster")
    assert "of 2 trials are; `%mw_sweep --resume 1` runs the others" in again.text
    assert "2 trials: 2 finished" in str(kernel.run("%mw_sweep --resume").shown)
    assert "not over" not in kernel.run("%mw_cluster").text


def test_ctrl_c_in_a_sweep_loses_nothing(kernel, tmp_path):
    assert kernel.run("%mw_cluster 1 --no-warm --grace 0.2").error is None
    assert kernel.run(CELL).error is None
    (tmp_path / "hold").touch()
    request = kernel.send("%mw_sweep units=1,2")
    eventually(lambda: len(runs(tmp_path)) == 2 and runs(tmp_path)[1].metrics())
    kernel.manager.interrupt_kernel()
    text = kernel.collect(request).error
    assert text.startswith("WaitInterrupted: sweep 1 is not over: 0 of 2 trials are")
    (tmp_path / "hold").unlink()
    again = kernel.run("%mw_sweep --resume")
    assert "trial 1 begins again: run 2 was interrupted" in again.text
    assert "2 trials: 2 finished" in str(again.shown)
