"""Whatever process ends or stops, nothing is left, no line is lost and the cause is right."""

from __future__ import annotations

import importlib.util
import signal
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[1] / "benchmarks" / "chaos.py"
ROUNDS = 12


@pytest.fixture(scope="module")
def chaos():
    """The benchmark, of which this is a short run."""
    spec = importlib.util.spec_from_file_location("chaos", BENCHMARK)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP], ids=str)
@pytest.mark.parametrize("target", ["worker:1", "agent", "zygote", "supervisor", "kernel"])
def test_each_process_may_end_or_stop(chaos, tmp_path, target, number):
    chosen = chaos.Round(target, number, delay=0.1)
    chaos.play(chosen, tmp_path, f"{target}-{number}")
    assert not chosen.faults, chosen


@pytest.mark.slow
def test_at_any_moment(chaos):
    wrong = [one for one in chaos.rounds(ROUNDS, seed=7) if one.faults]
    assert not wrong
