"""A sweep from Python: any iterable of trials, and what of it cannot be run or extended."""

from __future__ import annotations

import pytest

from mwmagic.client.planning import extend_sweep, new_sweep
from mwmagic.errors import BadArguments
from mwmagic.experiments.sweep import sweeps
from mwmagic.record import runs

PROGRAM = """
from mwmagic.worker import report
units = 32
lr = 0.1
report(loss=units * lr)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "train.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def listed(folder, *trials, **how):
    return new_sweep(folder, "train.py", iter(trials), cwd=folder, **how)


@pytest.mark.slow
@pytest.mark.tensorflow
def test_any_iterable_of_parameters_is_a_sweep(folder, warm_pair):
    sweep = warm_pair.sweep("train.py", ({"units": one, "lr": 0.5} for one in (16, 8)))
    found = sweep.outcomes()
    assert [one.facts.last["loss"] for one in found] == [8.0, 4.0]
    assert [one.facts.parameters["units"] for one in found] == [16, 8]
    assert sweep.best() == found[1].record


def test_listed_trials_need_not_have_the_same_parameters_and_can_be_repeated(folder):
    sweep = listed(folder, {"units": 32}, {"units": "64", "lr": 1})
    assert [one.params for one in sweep.trials()] == [{"units": 32}, {"units": 64, "lr": 1.0}]
    assert extend_sweep(sweep, {}, repeat=2) == 2
    with pytest.raises(BadArguments, match="sweep 1 varies no listed values, not lr"):
        extend_sweep(sweep, {"lr": "0.1,0.2"})
    with pytest.raises(BadArguments, match="sweep 1 has no values to draw from"):
        extend_sweep(sweep, {}, random=2)


@pytest.mark.parametrize(
    ("trials", "message"),
    [
        ([], "the list of trials is empty"),
        ([32], "a trial is a mapping such as {'units': 32}, not 32"),
        ([{"units": 1}, {"units": 1}], "{'units': 1} is listed twice: repeat=2 runs each"),
        ([{"unit": 1}], "did you mean units?"),
        ([{"lr": one} for one in range(10_001)], "10,001 trials, and one may have 10,000"),
    ],
)
def test_a_list_that_cannot_be_run_is_refused_before_anything_is_written(folder, trials, message):
    with pytest.raises(BadArguments) as refusal:
        listed(folder, *trials)
    assert message in str(refusal.value)
    with pytest.raises(BadArguments, match="or a list of trials, as"):
        new_sweep(folder, "train.py", 7, cwd=folder)
    assert not sweeps(folder)
    assert not runs(folder)
