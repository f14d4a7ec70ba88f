"""``%mw_fetch`` in a kernel."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("nothing_survives")]

SAVE = """%%mw_worker
from pathlib import Path
Path("model.txt").write_text("weights")
"""


def test_what_a_task_wrote_is_fetched(kernel, tmp_path):
    assert "NoCluster" in kernel.run("%mw_fetch 0 model.txt").error
    kernel.run("%mw_cluster 1 --no-warm")
    kernel.run(SAVE)
    kernel.run("%mw_wait")
    here = f"{tmp_path}/model.txt is here already: worker:0 shares this disk\n"
    assert kernel.run("%mw_fetch 0 model.txt").text == here
    told = f"fetched {tmp_path}/model.txt of worker:0 to {tmp_path}/copy.txt (1 kB)\n"
    assert kernel.run("%mw_fetch 0 model.txt --to copy.txt").text == told
    assert (tmp_path / "copy.txt").read_text() == "weights"
    assert "`--overwrite` replaces it" in kernel.run("%mw_fetch 0 model.txt --to copy.txt").error
    assert kernel.run("path = %mw_fetch 0 model.txt --to copy.txt --overwrite\npath.name").value
    assert "cannot be fetched" in kernel.run("%mw_fetch worker:0 none.keras").error
    assert "worker:0" in kernel.run("%mw_fetch worker:7 model.txt").error
    assert "PATH" in kernel.run("%mw_fetch 0").error
