"""A sweep on disk: planned as a whole, extended, read with the records of its runs."""

from __future__ import annotations

import csv
import json
import os
from random import Random

import pytest

from mwmagic.errors import BadArguments, NoSweep, RunActive
from mwmagic.experiments.runs import Facts
from mwmagic.experiments.space import read_space, space_of
from mwmagic.experiments.sweep import (
    TRIALS_LIMIT,
    Plan,
    combinations,
    every,
    planned_sweep,
    seed_of,
    sweeps,
)
from mwmagic.experiments.trials import (
    Trial,
    TrialState,
    TrialStatus,
    groups,
    matters_most,
    ranked,
    seconds_left,
)
from mwmagic.record import RunDirectory
from mwmagic.record.reader import this_process
from mwmagic.words.sweep import as_csv, findings, sweep_words

SOURCE = "units = 32\nlr = 0.1\nseed = 7\n"


def planned(root, *words, **plan):
    space = space_of(read_space(words), SOURCE, (), {})
    return planned_sweep(root, Plan(script="main.py", cwd=str(root), **plan), SOURCE, every(space))


def launched(root, sweep, trial, state="finished", loss=0.5):
    """Write the record of a trial's run."""
    run = RunDirectory.create(root, "main")
    launch = {"script": "main.py", "cwd": str(root), "trial": f"{sweep.number}/{trial}"}
    reached = {"value": loss, "attempt": 1, "epoch": 1, "step": 1}
    metrics = {"worker:0": {"val_loss": {"last": reached, "best": reached}}}
    run.write({"state": state, "launches": {"worker:0": launch}, "metrics": metrics})
    run.flush()
    return run


def states(sweep):
    return [one.state.value for one in sweep.outcomes()]


def test_a_trial_is_over_when_its_runs_record_says_so(tmp_path):
    sweep = planned(tmp_path, "units=1,2,3,4,5,6")
    assert states(sweep) == ["waiting"] * 6
    for trial, state in [(1, "finished"), (2, "failed"), (3, "stopped"), (4, "running")]:
        launched(tmp_path, sweep, trial, state)
    # Nobody is there that could end the fourth.
    assert states(sweep) == ["finished", "failed", "interrupted", "interrupted", *["waiting"] * 2]
    launched(tmp_path, sweep, 3)
    assert states(sweep)[2] == "finished"
    assert [one.trial.number for one in sweep.left()] == [4, 5, 6]
    assert [one.trial.number for one in sweep.left(retry=True)] == [2, 4, 5, 6]


def test_a_pruned_trial_is_over_unless_it_had_ended_by_itself(tmp_path):
    sweep = planned(tmp_path, "units=1,2,3")
    for trial, state in [(1, "stopped"), (2, "finished"), (3, "stopped")]:
        launched(tmp_path, sweep, trial, state)
    records = [one.record for one in sweep.outcomes()]
    for record in records[:2]:
        sweep.prune(record, "val_loss>2")
    assert states(sweep) == ["pruned", "finished", "interrupted"]


def test_runs_of_other_sweeps_are_not_its_own(tmp_path):
    first, second = planned(tmp_path, "units=1,2"), planned(tmp_path, "units=1,2")
    assert [one.number for one in sweeps(tmp_path)] == [1, 2]
    launched(tmp_path, second, 2)
    assert states(first) == ["waiting", "waiting"]
    assert states(second) == ["waiting", "finished"]


def test_more_values_add_only_what_is_new(tmp_path):
    sweep = planned(tmp_path, "units=1,2", "lr=0.1,0.2")
    more = space_of(read_space(["units=1,2", "lr=0.1,0.2,0.3"]), SOURCE, (), {})
    assert sweep.extend(every(more)) == 2
    assert [one.params for one in sweep.trials()[4:]] == [
        {"units": 1, "lr": 0.3},
        {"units": 2, "lr": 0.3},
    ]
    assert [one.number for one in sweep.trials()] == [1, 2, 3, 4, 5, 6]
    assert sweep.extend(every(more)) == 0
    assert sweep.extend(every(more), repeat=2) == 6
    assert [one.repeat for one in sweep.trials()] == [0] * 6 + [1] * 6
    assert sweep.plan.repeat == 2


def test_draws_go_on_after_those_before_and_never_repeat_one():
    space = space_of(read_space(["units=1,2,3", "lr=0.1,0.2"]), SOURCE, (), {})
    first, drawn = combinations(space, 4, 0, 0)
    more, _ = combinations(space, 2, 0, drawn, first)
    assert len({json.dumps(one) for one in [*first, *more]}) == 6
    with pytest.raises(BadArguments, match="has only 6 combinations: try all"):
        combinations(space, 1, 0, drawn, [*first, *more])


def test_a_crash_in_the_middle_of_a_line_loses_that_line_only(tmp_path):
    sweep = planned(tmp_path, "units=1,2")
    path = sweep.path / "trials.jsonl"
    with path.open("a") as file:
        file.write('{"run": "0001-main", "pru')
    run = launched(tmp_path, sweep, 1, "stopped")
    sweep.prune(sweep.outcomes()[0].record, "val_loss>2")
    assert sweep.pruned() == {run.path.name: "val_loss>2"}
    assert states(sweep) == ["pruned", "waiting"]


def test_too_many_trials_are_refused_before_anything_is_written(tmp_path):
    words = [f"{name}={','.join(map(str, range(101)))}" for name in ("units", "lr")]
    with pytest.raises(BadArguments, match=f"10,201 trials, and one may have {TRIALS_LIMIT:,}"):
        planned(tmp_path, *words)
    with pytest.raises(BadArguments, match="draw some with --random"):
        planned(tmp_path, words[0], repeat=100)
    assert not sweeps(tmp_path)


def test_one_process_runs_a_sweep(tmp_path):
    sweep = planned(tmp_path, "units=1")
    file = sweep.path / "writer.json"
    parent = {**this_process(), "host": os.uname().nodename}
    with sweep.writing():
        assert json.loads(file.read_text()) == parent
    assert not file.exists()
    import psutil

    other = psutil.Process(os.getppid())
    file.write_text(json.dumps({**parent, "pid": other.pid, "started": other.create_time()}))
    with pytest.raises(RunActive, match=f"is being run by process {other.pid}"), sweep.writing():
        pass
    file.write_text(json.dumps({**parent, "pid": other.pid, "started": 1.0}))  # another, long ago
    with sweep.writing():
        pass
    file.write_text(json.dumps({**parent, "host": "elsewhere"}))
    with pytest.raises(RunActive, match="run on elsewhere; if it is not, remove"), sweep.writing():
        pass


def test_a_sweep_of_a_newer_version_or_a_damaged_one_is_said(tmp_path):
    sweep = planned(tmp_path, "units=1")
    plan = sweep.path / "sweep.json"
    plan.write_text(json.dumps({**json.loads(plan.read_text()), "version": 99}))
    with pytest.raises(NoSweep, match="planned by a newer version"):
        _ = sweep.plan
    plan.write_text("{")
    with pytest.raises(NoSweep, match="gone or damaged"):
        _ = sweep.plan
    (sweep.path / "trials.jsonl").unlink()
    with pytest.raises(NoSweep, match="trials of sweep 1 are gone"):
        sweep.outcomes()


def test_the_files_are_private(tmp_path):
    sweep = planned(tmp_path, "units=1")
    assert sweep.path.stat().st_mode & 0o777 == 0o700
    assert {one.stat().st_mode & 0o777 for one in sweep.path.iterdir()} == {0o600}
    assert (tmp_path / ".mwmagic" / ".gitignore").read_text() == "*\n"


def test_the_parameter_of_the_seed():
    assert seed_of(SOURCE, (), {}) == ("seed", 7)
    assert seed_of("config = {'RANDOM_SEED': 3}\n", (), {}) == ("config.RANDOM_SEED", 3)
    assert seed_of("units = 3\n", (), {}) is None


def outcome(number, loss, repeat=0, state=TrialState.FINISHED, **params):
    facts = Facts(number, "main", state.value, best={} if loss is None else {"val_loss": loss})
    return TrialStatus(Trial(number, params, repeat), state, facts)


def test_the_best_is_judged_over_its_repetitions():
    outcomes = [
        outcome(1, 0.1, units=1, lr=0.1),
        outcome(2, 0.9, 1, units=1, lr=0.1),
        outcome(3, 0.3, units=2, lr=0.1),
        outcome(4, 0.4, 1, units=2, lr=0.1),
        outcome(5, None, units=3, lr=0.1),
        outcome(6, float("nan"), units=4, lr=0.1),
        outcome(7, 0.0, state=TrialState.PRUNED, units=5, lr=0.1),
    ]
    [best, other] = groups(outcomes, "val_loss")
    assert (best.params["units"], best.trials) == (2, [3, 4])
    assert best.mean == pytest.approx(0.35)
    assert best.spread == pytest.approx(0.0707, abs=1e-4)
    assert other.params["units"] == 1
    found = (
        "best: trials 3, 4 (runs 3, 4; units 2, lr 0.1), val_loss 0.35 ± 0.071 over 2 repetitions"
    )
    assert findings(outcomes, "val_loss") == [found]
    # Repetitions stand together; what was ended early is where its best value belongs.
    order = [7, 3, 4, 1, 2, 5, 6]
    assert [one.trial.number for one in ranked(outcomes, "val_loss")] == order
    assert [one.trial.number for one in ranked(outcomes[::-1], "val_loss")] == order


def tried(value, times=2):
    """Return the trials of a grid of two parameters, each so many times."""
    pairs = [(units, lr) for _ in range(times) for units in (1, 2, 3) for lr in (1, 2)]
    return [
        outcome(at, value(units, lr), at, units=units, lr=lr)
        for at, (units, lr) in enumerate(pairs, 1)
    ]


def test_what_matters_most_is_said_only_if_the_data_say_it():
    name, part = matters_most(tried(lambda units, lr: 10 * lr + units), "val_loss")
    assert name == "lr"
    assert part == pytest.approx(0.97, abs=0.01)
    assert matters_most(tried(lambda units, lr: 1.6 * lr + units), "val_loss") is None
    assert matters_most(tried(lambda _units, _lr: 1.0), "val_loss") is None
    # Six results are alike by chance as often as one time in ten.
    assert matters_most(tried(lambda units, lr: 10 * lr + units, 1), "val_loss") is None
    alone = [outcome(at, at, units=1, lr=at % 2) for at in range(20)]
    assert matters_most(alone, "val_loss") is None


def test_chance_is_not_what_matters_most():
    random = Random(0)
    said = [matters_most(tried(lambda _u, _l: random.gauss(0, 1)), "val_loss") for _ in range(100)]
    assert sum(one is not None for one in said) <= 8


def test_the_values_of_a_range_are_put_together():
    random = Random(0)
    draws = [(random.uniform(1, 9), random.choice((16, 32))) for _ in range(12)]
    outcomes = [outcome(at, lr, lr=lr, units=units) for at, (lr, units) in enumerate(draws, 1)]
    name, part = matters_most(outcomes, "val_loss")
    assert name == "lr"
    assert part > 0.7


def going(took, running=(), waiting=0):
    """Return trials that ended one after the other since a moment, and others."""
    began = 100.0
    trials = []
    for seconds in took:
        facts = Facts(1, "main", "finished", started=began, seconds=seconds)
        trials.append(TrialStatus(Trial(1), TrialState.FINISHED, facts))
        began += seconds + 1
    facts = [Facts(1, "", "", started=one) for one in running]
    trials += [TrialStatus(Trial(1), TrialState.RUNNING, one) for one in facts]
    return [*trials, *[TrialStatus(Trial(1), TrialState.WAITING)] * waiting]


def test_the_time_left_is_said_only_if_it_can_be_right():
    three = going([9, 9, 9], [130.0], 10)
    # A trial takes 9 s, and the next one begins a second later; half of one is over.
    assert seconds_left(three, 100.0, 134.5) == pytest.approx(29 / 3 * 10.5)
    assert "1 running, about 2 min left" in sweep_words(1, three, seconds_left(three, 100, 134.5))
    assert seconds_left(three, 101.0, 134.5) is None, "one ended before, at another pace"
    assert seconds_left(going([9, 9], [], 10), 100.0, 120.0) is None
    assert seconds_left(going([1, 9, 60], [], 10), 100.0, 180.0) is None
    assert seconds_left(going([9, 9, 9], [130.0] * 4), 100.0, 134.5) is None, "none of theirs"
    last = seconds_left(going([9, 9, 9], [130.0]), 100.0, 130.0)
    assert last == pytest.approx(29 / 3)
    two = going([9, 9, 9, 9], [140.0, 140.0])
    for one, started in zip(two, (100.0, 100.0, 110.0, 110.0), strict=False):
        object.__setattr__(one.facts, "started", started)
    assert seconds_left(two, 100.0, 140.0) == pytest.approx(9.5), "two at once"


def test_the_states_of_runs_that_are_over_are_not_read_again(tmp_path):
    sweep = planned(tmp_path, "units=1,2,3")
    launched(tmp_path, sweep, 1)
    settled = {}
    first = sweep.outcomes(settled)
    assert list(settled) == [first[0].record.path.name]
    launched(tmp_path, sweep, 2, "failed")
    again = sweep.outcomes(settled)
    assert again[0].facts is first[0].facts
    assert [one.state.value for one in again] == ["finished", "failed", "waiting"]


def test_a_sweep_as_csv_has_what_its_frame_has(tmp_path):
    sweep = planned(tmp_path, "units=1,2")
    launched(tmp_path, sweep, 1)
    [one, other] = csv.DictReader(as_csv(sweep).splitlines())
    assert (one["trial"], one["trial state"], one["number"], one["best val_loss"]) == (
        *("1", "finished", "1", "0.5"),
    )
    assert (other["trial"], other["trial state"], other["number"], other["units"]) == (
        *("2", "waiting", "", "2"),
    )
    assert sorted(sweep.frame().columns) == sorted(one)


def test_a_metric_that_no_trial_has_is_said():
    outcomes = [outcome(1, 0.5, units=1)]
    outcomes[0].facts.last["val_loss"] = 0.5
    assert findings(outcomes, "val_los")[-1] == (
        "no finished trial has the metric 'val_los': there are val_loss"
    )
    two = [outcome(1, 0.5, units=1), outcome(2, 0.5, units=2)]
    assert findings(two, "val_loss") == ["best: trial 1 (run 1; units 1), val_loss 0.5; as good: 2"]
    many = [outcome(at, 0.5, units=at) for at in range(1, 9)]
    assert findings(many, "val_loss")[0].endswith("; as good: 2, 3, 4, 5, 6 and 2 others")
    assert findings([outcome(1, None, units=1)], "")[-1].startswith("no trial reported a metric")
    assert len(findings([outcome(1, None, state=TrialState.FAILED)], "")) == 1
    pruned = [outcome(1, None, state=TrialState.PRUNED)]
    assert findings(pruned, "") == ["no trial finished, so none of them is the best"]


def test_trials_that_failed_alike_are_one_sentence():
    outcomes = [failed(at, "ValueError: no") for at in (1, 2, 3)]
    assert sweep_words(1, outcomes) == "sweep 1, 3 trials: 3 failed"
    [line] = findings(outcomes, "")
    assert line.startswith("3 trials failed alike (1, 2, 3): a task ")
    assert line.endswith(": ValueError: no")


def failed(number, exception, **params):
    cause = {"finding": {"task": "worker:0", "symptom": "exited", "code": 1}}
    facts = Facts(number, "main", "failed", failure={**cause, "exception": exception})
    return TrialStatus(Trial(number, params), TrialState.FAILED, facts)


@pytest.mark.parametrize(
    ("texts", "line"),
    [
        (["(2, 3) at 0x7fa0", "(4, 3) at 0x7fb0"], "(2 or 4, 3) at 0x7fa0 or others"),
        (["dense_1 got 8", "dense_1 got 2", "dense_1 got -1e3"], "dense_1 got -1e3 to 8"),
        (["no 'a'", "no 'b'", "no 'c'"], "no 'a', 'b' or others"),
        (["'a' of 'a', 'b'", "'a' of 'a', 'b'", "'b' of 'a', 'b'"], None),
        (["in float32", "in float64"], None),
        (["from 10.0.0.1", "from 10.0.0.2"], None),
        (["one", "two"], None),
    ],
)
def test_failures_that_differ_by_numbers_or_by_what_was_tried_are_one_sentence(texts, line):
    names = ["a", "b", "c"]
    outcomes = [failed(at + 1, one, act=names[at]) for at, one in enumerate(texts)]
    found = findings(outcomes, "")
    if line is None:
        assert len(found) == len(set(texts))
    else:
        numbers = ", ".join(str(at + 1) for at in range(len(texts)))
        told = f"{len(texts)} trials failed alike ({numbers}): a task exited with code 1: {line}"
        assert found == [told]


def test_exit_codes_tell_failures_apart():
    one, other = failed(1, ""), failed(2, "")
    other.facts.failure["finding"] = {**other.facts.failure["finding"], "code": 17}
    assert len(findings([one, other], "")) == 2
