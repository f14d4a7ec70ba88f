"""Why attempts failed that others followed."""

from __future__ import annotations

import pytest

from mwmagic.model.status import Setback

ONCE = """
import os, sys, time
if os.environ["MWMAGIC_ATTEMPT"] == "1":
    if os.environ["MWMAGIC_TASK"] == "worker:1":
        raise OSError("once")
    time.sleep(600)
"""


@pytest.mark.slow
def test_a_run_keeps_why_it_was_started_again(cluster):
    run = cluster(2, restarts=1).run("main.py", source=ONCE)
    run.wait(120)
    [setback] = run.status().setbacks
    assert (setback.attempt, run.status().attempt) == (1, 2)
    assert setback.cause.exception == "OSError: once"
    assert setback.cause.finding.task == "worker:1"
    assert [Setback.from_json(event) for event in run.record.events("setback")] == [setback]
    assert run.record.status.setbacks == (setback,)
    assert run.cause is None


TRAINS = """
import os
from mwmagic.worker import report
if os.environ["MWMAGIC_TASK"] == "worker:1":
    first = os.environ["MWMAGIC_ATTEMPT"] == "1"
    report(epoch=2, step=3 if first else 1, loss=0.5)
    assert not first
"""


@pytest.mark.slow
def test_a_failed_attempt_keeps_where_it_was_and_where_the_next_one_began(cluster):
    run = cluster(2, restarts=1).run("main.py", source=TRAINS)
    run.wait(120)
    [setback] = run.status().setbacks
    assert (setback.reached.epoch, setback.reached.step) == (2, 3)
    assert (setback.resumed.epoch, setback.resumed.step) == (2, 1)
    assert run.record.status.setbacks == (setback,)
