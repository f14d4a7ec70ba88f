"""What a study is asked and told, once each, and what it cannot do."""

from __future__ import annotations

import pytest

from mwmagic.client.planning import extend_sweep, new_sweep
from mwmagic.client.study import StudyTrials, check_continued, named_study
from mwmagic.errors import BadArguments
from mwmagic.experiments.sweep import sweeps
from mwmagic.record import RunDirectory
from mwmagic.words.sweep import resume_words

optuna = pytest.importorskip("optuna")
optuna.logging.set_verbosity(optuna.logging.ERROR)

PROGRAM = "units = 32\nlr = 0.1\nseed = 1\n"
SPACE = {"units": "uniform(16,128)", "lr": "log(1e-4,1e-1)"}


def planned(folder, study, space=SPACE, **how):
    (folder / "main.py").write_text(PROGRAM)
    how = {"metric": "val_loss", "random": 3, **how}
    return new_sweep(folder, "main.py", space, cwd=folder, study=study, **how)


def states(study):
    return [one.state.name for one in study.trials]


def recorded(folder, sweep, trial, state, loss=0.5):
    """Write the record of a trial's run."""
    run = RunDirectory.create(folder, "main")
    launch = {"script": "main.py", "cwd": str(folder), "trial": sweep.label(trial)}
    reached = {"value": loss, "attempt": 1, "epoch": 1, "step": 1}
    metrics = {"worker:0": {"val_loss": {"last": reached, "best": reached}} if loss else {}}
    run.write({"state": state, "launches": {"worker:0": launch}, "metrics": metrics})
    run.flush()


def test_a_kill_between_asking_and_noting_leaves_no_trial_that_nobody_knows(tmp_path):
    study = optuna.create_study()
    sweep = planned(tmp_path, study, {"units": [16, 64], "lr": "log(1e-4,1e-1)"})
    first, second, third = sweep.trials()
    asking = StudyTrials(study, sweep)
    asked = asking._ask(f"{sweep.path.absolute()}/1")
    assert states(study) == ["RUNNING"]
    again = StudyTrials(study, sweep).suggested(first)
    assert (again.study_number, states(study)) == (asked.number, ["RUNNING"])
    assert sweep.trials()[0] == again
    assert again.params["units"] in (16, 64)
    # What the user has queued comes first, and what a kill left in the queue is not lost.
    study.enqueue_trial({"units": 16, "lr": 0.05})
    assert StudyTrials(study, sweep).suggested(second).params == {"units": 16, "lr": 0.05}
    study.add_trial(optuna.trial.create_trial(state=optuna.trial.TrialState.WAITING))
    assert StudyTrials(study, sweep).suggested(third).study_number == 2
    assert states(study) == ["RUNNING"] * 3


def test_a_study_is_told_once_what_the_record_says(tmp_path):
    study = optuna.create_study()
    sweep = planned(tmp_path, study, random=5)
    asking = StudyTrials(study, sweep)
    for trial in sweep.trials():
        asking.suggested(trial)
    ends = [("finished", 0.25), ("finished", None), ("failed", 0.1), ("stopped", 0.3), ("lost", 1)]
    for trial, (state, loss) in zip(sweep.trials(), ends, strict=True):
        recorded(tmp_path, sweep, trial, state, loss)
    sweep.prune(sweep.outcomes()[3].record, "MedianPruner pruned it")
    for _ in range(2):  # which tells nothing twice
        StudyTrials(study, sweep).settle(sweep.outcomes())
    assert states(study) == ["COMPLETE", "FAIL", "FAIL", "PRUNED", "RUNNING"]
    assert study.best_value == 0.25
    assert extend_sweep(sweep, {}, random="+2") == 2
    assert len(sweep.left()) == 3
    with pytest.raises(BadArguments, match=r"--extend 1 --random \+N, and nothing else, adds N"):
        extend_sweep(sweep, {"lr": "0.1"}, random="+2")


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"study": {}}, "study= needs an optuna.Study, as .* and this is dict {}"),
        ({"metric": ""}, "a study optimizes one metric, so say which: add --metric val_loss"),
        ({"metric": "accuracy"}, "is to minimize, but higher values of accuracy are better"),
        ({"random": None}, "say how many trials there shall be with --random N"),
        ({"space": {}, "repeat": 2}, "give parameters with values or ranges"),
        ({"repeat": 2}, "leave out --repeat"),
        ({"seed": 2}, "leave out --seed"),
        ({"space": [{"units": 16}]}, "a list of trials is run as it is: leave out random"),
        ({"study": optuna.create_study(directions=["minimize"] * 2)}, "has 2 objectives"),
    ],
)
def test_what_a_study_cannot_do_is_refused_before_anything_is_written(tmp_path, how, message):
    with pytest.raises(BadArguments, match=message):
        planned(tmp_path, **{"study": optuna.create_study(), **how})
    assert not sweeps(tmp_path)


def test_a_sweep_continues_with_its_own_study_only(tmp_path):
    study = optuna.create_study(study_name="mine")
    sweep = planned(tmp_path, study)
    StudyTrials(study, sweep).suggested(sweep.trials()[0])
    check_continued(sweep, study, retry=False)
    empty = optuna.create_study(study_name="mine")
    for other, retry, message in [
        (None, False, "load it in a notebook, and continue with %mw_sweep --resume 1 --study"),
        (empty, False, "and this is not that one: load it from its storage"),
        (optuna.create_study(), False, "from the study 'mine', and this is 'no-name"),
        (study, True, "without --retry, runs N more"),
    ]:
        with pytest.raises(BadArguments, match=message):
            check_continued(sweep, other, retry=retry)
    with pytest.raises(BadArguments, match="there is no stody here"):
        named_study({"study": study}, "stody")
    with pytest.raises(BadArguments, match="--study number needs an optuna"):
        named_study({"number": 7}, "number")
    assert named_study({"study": study}, "study") is study
    for command in ("%mw_sweep", "mwmagic sweep"):
        assert resume_words(sweep, command) == (
            "sweep 1 is not over: 0 of 3 trials are; `%mw_sweep --resume 1 --study NAME` runs the "
            "others; NAME is a variable that holds the Optuna study 'mine'"
        )
