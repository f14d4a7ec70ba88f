"""The board of a sweep: what it says before the first trial, and at its end."""

from __future__ import annotations

from mwmagic.dashboard.sweep import SweepBoard
from mwmagic.experiments.sweep import Plan, planned_sweep


def test_a_sweep_that_begins_is_not_said_to_be_over_or_left(tmp_path, capsys):
    plan = Plan(script="main.py", cwd=str(tmp_path))
    sweep = planned_sweep(tmp_path, plan, "units = 1\n", [{"units": 1}, {"units": 2}])
    board = SweepBoard(sweep, hosted=False, answer_pages=lambda: None)
    assert board.widget.table["title"] == "sweep 1: 0 of 2 trials"
    assert board.widget.table["notes"] == []
    board.finish()
    [note] = board.widget.table["notes"]
    assert note.startswith("sweep 1 is not over: 0 of 2 trials are; `%mw_sweep --resume 1`")
    board.close()
    capsys.readouterr()
