"""Optuna's own TPE and pruner on two parameters, in a kernel that is killed."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from processes import eventually

from mwmagic.experiments.sweep import sweeps
from mwmagic.experiments.trials import TrialState
from mwmagic.record import runs

optuna = pytest.importorskip("optuna")

PROGRAM = """
import time
from mwmagic.worker import report

units = 32
lr = 0.1
for epoch in range(1, 9):
    report(val_loss=abs(units - 48) / 10 + lr + 1 / epoch, epoch=epoch)
    time.sleep(0.05)
"""

STUDY = """
import optuna
from optuna.storages import JournalStorage, journal

storage = JournalStorage(journal.JournalFileBackend("journal.log"))
sampler = optuna.samplers.TPESampler(seed=1, n_startup_trials=3)
pruner = optuna.pruners.MedianPruner(n_startup_trials=2, n_warmup_steps=2)
how = {"study_name": "tuned", "load_if_exists": True}
study = optuna.create_study(storage=storage, sampler=sampler, pruner=pruner, **how)
"""


@pytest.mark.slow
def test_a_study_that_is_killed_and_resumed_counts_each_trial_once(kernel, tmp_path):
    (tmp_path / "main.py").write_text(PROGRAM)
    assert kernel.run("%mw_cluster 1 --no-warm --grace 0.2").error is None
    assert kernel.run(STUDY).error is None
    space = "units=uniform(16,128) lr=log(1e-4,1e-1) --random 12 --metric val_loss"
    kernel.send(f"%mw_sweep {space} --file main.py --study study")
    eventually(lambda: len(runs(tmp_path)) == 5 and runs(tmp_path)[4].metrics())
    kernel.restart(now=True)
    assert kernel.run("%mw_cluster 1 --no-warm --grace 0.2").error is None
    lost = kernel.run("%mw_sweep --resume").error
    assert "from the Optuna study 'tuned': load it in a notebook, and continue with" in lost
    assert kernel.run(STUDY).error is None
    resumed = kernel.run("%mw_sweep --resume --study study")
    assert resumed.error is None
    assert "12 trials: " in str(resumed.shown)

    [sweep] = sweeps(tmp_path)
    outcomes = sweep.outcomes()
    numbers = [one.trial.study_number for one in outcomes]
    facts = "[(one.state.name, one.value, one.params) for one in study.trials]"
    trials = json.loads(kernel.run(f"import json; print(json.dumps({facts}))").text)
    assert numbers == list(range(12))
    assert [one.trial.params for one in outcomes] == [params for _, _, params in trials]
    names = {TrialState.FINISHED: "COMPLETE", TrialState.PRUNED: "PRUNED"}
    assert [names[one.state] for one in outcomes] == [state for state, _, _ in trials]
    assert Counter(state for state, _, _ in trials)["PRUNED"] >= 1
    finished = [one for one in outcomes if one.state is TrialState.FINISHED]
    best = [one.facts.best["val_loss"] for one in finished]
    assert best == [value for state, value, _ in trials if state == "COMPLETE"]
    done = "one.state.name == 'COMPLETE'"
    steps = f"{{tuple(one.intermediate_values) for one in study.trials if {done}}}"
    assert kernel.run(steps).value == "{(1, 2, 3, 4, 5, 6, 7, 8)}"
    found = kernel.run("study.best_trial.number").value
    assert sweep.best() == outcomes[int(found)].record
