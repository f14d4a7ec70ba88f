"""The bars of tqdm, from a worker that draws one to the status of its run."""

from __future__ import annotations

import pytest
from processes import eventually

TRAIN = """
import time
from tqdm import tqdm

with tqdm(total=10, unit=" batch", desc="Epoch 1/2", mininterval=0) as bar:
    for step in range(4):
        bar.set_postfix(loss=0.5, refresh=False)
        bar.update()
    time.sleep(600)
"""


@pytest.mark.slow
def test_a_bar_shows_how_far_a_run_is(cluster):
    run = cluster(1).run("main.py", source=TRAIN)

    def there():
        progress = run.status().tasks["worker:0"].progress
        return progress if progress is not None and progress.step == 4 else None

    progress = eventually(there, "the bar's fourth step")
    assert (progress.epoch, progress.epochs, progress.steps) == (1, 2, 10)
    assert progress.metrics == {"loss": 0.5}
    run.stop()
