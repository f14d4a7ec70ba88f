"""What a notebook says while a new cluster still imports the framework."""

from __future__ import annotations

import re

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.tensorflow]


def test_the_first_launch_says_that_it_waits_for_the_import(kernel):
    kernel.run("%mw_cluster 1")
    kernel.run("%%mw_worker\nprint('well')")
    told = kernel.run("%mw_status").value
    assert re.fullmatch(
        r"run 1: importing TensorFlow \(\d+ s\)\n  worker:0  importing TensorFlow \(\d+ s\)", told
    )
    assert kernel.run("%mw_wait", timeout=120).error is None
