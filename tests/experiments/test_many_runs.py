"""Records that are large or odd."""

from __future__ import annotations

import json

import pytest
from test_runs import record

from mwmagic.experiments.runs import SPARK_POINTS, facts_of
from mwmagic.record import runs
from mwmagic.words.table import RunTable


def entry(step, value, task="worker:0", **more):
    fields = {"wall": 1.0, "task": task, "attempt": 1, "step": step, **more}
    return json.dumps({**fields, "metrics": {"loss": value}}) + "\n"


def test_values_that_are_not_finite_leave_a_gap(tmp_path):
    record(tmp_path, loss=("NaN", 0.5))
    [one] = runs(tmp_path)
    lines = [entry(1, 2.0), entry(2, "NaN"), "{torn\n", entry(3, "Infinity"), entry(4, 1.0)]
    one.paths.metrics.write_text("".join(lines))
    facts = facts_of(one)
    assert (facts.curve("loss"), facts.last, facts.best) == ([2.0, 1.0], {}, {"loss": 0.5})
    assert json.loads(RunTable([one]).as_json())[0]["best"] == {"loss": 0.5}


@pytest.mark.slow
def test_a_long_history_is_read_in_part(tmp_path):
    record(tmp_path)
    [one] = runs(tmp_path)
    with one.paths.metrics.open("w") as file:
        for step in range(200_000):
            file.write(entry(step, float(step)))
            file.write(entry(step, 0.0, task="worker:1"))
    curve = facts_of(one).curve("loss")
    assert len(curve) == SPARK_POINTS
    assert curve == sorted(curve)
    assert curve[0] < 2000
    assert curve[-1] > 198_000
