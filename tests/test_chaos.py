"""Whatever process ends or stops, nothing is left, no line is lost and the cause is right."""

from __future__ import annotations

import signal

import chaos
import pytest

ROUNDS = 12


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP], ids=str)
@pytest.mark.parametrize("target", ["worker:1", "agent", "zygote", "supervisor", "kernel"])
def test_each_process_may_end_or_stop(tmp_path, target, number):
    chosen = chaos.Round(target, number, delay=0.1)
    chaos.play(chosen, tmp_path, f"{target}-{number}")
    assert not chosen.faults, chosen


@pytest.mark.slow
def test_at_any_moment():
    wrong = [one for one in chaos.rounds(ROUNDS, seed=7) if one.faults]
    assert not wrong
