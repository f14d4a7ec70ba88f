"""A kernel that restarts while the cluster of the one before it still ends."""

from __future__ import annotations

import pytest
from processes import LINGERS, eventually

pytestmark = pytest.mark.slow


def test_a_restarted_kernel_waits_for_the_end_of_the_old_cluster_and_gets_a_new_one(
    kernel, tmp_path
):
    kernel.run("%mw_cluster 1 --no-warm --grace 60")
    kernel.run(f"%%mw_worker{LINGERS}")
    eventually((tmp_path / "up").exists)
    kernel.restart(now=False)
    eventually((tmp_path / "saving").exists)
    request = kernel.send("%mw_cluster 1 --no-warm")
    said = kernel.client.get_iopub_msg
    eventually(lambda: "is still ending" in said(timeout=120)["content"].get("text", ""))
    (tmp_path / "saved").touch()
    declared = kernel.collect(request)
    assert declared.error is None
    assert "worker:0" in declared.value
    assert "reusing" not in declared.text
    kernel.run("%%mw_worker\nprint('well')")
    assert kernel.run("%mw_wait").error is None
    assert kernel.run("%mw_logs 0").text == "well\n"
