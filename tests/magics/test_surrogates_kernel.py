"""Halves of characters, which no encoder accepts, on their way from a worker to the notebook."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.slow

HALF = r"""%%mw_worker
from mwmagic.worker import report
report(**{"l\ud83d": 1.0})
raise ValueError("half \ud83d")
"""


def test_half_a_character_ends_no_cell_and_no_cluster(kernel):
    kernel.run("%mw_cluster 1 --no-warm --grace 0.2")
    kernel.run(HALF)
    waited = kernel.run("%mw_wait")
    assert waited.error.startswith("WorkerFailed: run 1 failed: worker:0 exited with code 1")
    assert "ValueError: half \N{REPLACEMENT CHARACTER}" in waited.error
    assert any(
        "l\N{REPLACEMENT CHARACTER} 1" in data["text/plain"] for data in waited.shown.values()
    )
    assert kernel.run("%mw_status").error is None
    kernel.run("%%mw_worker\nprint('whole')")
    assert kernel.run("run = %mw_wait").error is None
    assert kernel.run("%mw_logs 0").text == "whole\n"
