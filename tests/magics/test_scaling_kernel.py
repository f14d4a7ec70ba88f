"""`%mw_scale` in a notebook: the last cell's program, Ctrl-C, and a result that is kept."""

from __future__ import annotations

import pytest
from processes import eventually

from mwmagic.experiments.scaling import Scaling
from mwmagic.experiments.sweep import stored
from mwmagic.record import runs

pytestmark = pytest.mark.slow

CELL = """%%mw_worker --wait
import time
import mwmagic.worker
steps = 1
for step in range(steps):
    time.sleep(0.02 / mwmagic.worker.cluster_size())
    mwmagic.worker.report(step=step)
"""


def test_a_notebook_measures_its_last_cell_with_other_numbers_of_workers(kernel, tmp_path):
    assert kernel.run("%mw_cluster 1 --no-warm --grace 0.2").error is None
    assert kernel.run(CELL).error is None
    assert "is given twice" in kernel.run("%mw_scale 1 1").error
    request = kernel.send("%mw_scale 1 2 --steps 60 --strong -p steps=100000")
    eventually(lambda: len(runs(tmp_path)) == 3)
    kernel.manager.interrupt_kernel()
    error = kernel.collect(request).error
    assert error.startswith("WaitInterrupted: scaling 1 is not over: 1 of 2 trials are; `%mw_scale")
    # The notebook's own cluster was left as it was.
    assert "run 1" in str(kernel.run("%mw_status").shown)
    again = kernel.run("%mw_scale --resume -o found")
    assert again.error is None
    *_, shown = [one for one in again.shown.values() if "text/html" in one]
    assert "2 workers train " in shown["text/plain"]
    assert "x as fast as 1: on this machine the 2 share " in shown["text/plain"]
    assert "data:image/svg+xml" in shown["text/html"]
    # A step takes half as long with two; the machine may be busy.
    [_, two] = stored(tmp_path, Scaling)[0].study().sizes
    assert two.speedup > 1.1
    assert kernel.run("%mw_scale --show 1").shown
    *_, value = kernel.run("found").shown.values()
    assert value["text/plain"] == shown["text/plain"]
    assert "keeps its sizes and options: leave out 4" in kernel.run("%mw_scale 4 --resume").error
    assert [one.state for one in runs(tmp_path)][:2] == ["finished", "stopped"]
