"""A scaling study: speeds from recorded steps, what they are compared by, and what is said."""

from __future__ import annotations

import json

import pytest

from mwmagic.client.scaling import new_scaling
from mwmagic.dashboard.sweep import NotebookScaling
from mwmagic.errors import BadArguments
from mwmagic.experiments.scaling import Scaling, StepMark, speed_of
from mwmagic.experiments.sweep import stored, sweeps
from mwmagic.record import RunDirectory
from mwmagic.record.metrics import metric_line
from mwmagic.words.sweep import scaling_lines, scaling_notes, scaling_words

SOURCE = "batch = 64\nunits = 8\nstrategy = True\n"


def steady(rate, seconds, begin=0, wall=0.0, epoch=1):
    """Return a report every 0.1 s of a training with so many steps a second."""
    count = int(seconds * 10) + 1
    return [StepMark(begin + rate * at / 10, wall + at / 10, epoch) for at in range(count)]


def test_the_first_steps_do_not_count():
    slow = steady(rate=2, seconds=10)
    speed = speed_of([*slow, *steady(100, 4, begin=20, wall=10)], steps=200)
    assert speed.rate == pytest.approx(100, rel=0.01)
    assert max(speed.rates) - min(speed.rates) < 1


def test_a_validation_between_long_epochs_does_not_count():
    first, second = steady(50, 3), steady(50, 3, begin=150, wall=13, epoch=2)
    assert speed_of([*first, *second], steps=10).rate == pytest.approx(50, rel=0.01)


def test_epochs_too_short_to_be_timed_count_with_what_is_between_them():
    epochs = [steady(50, 0.2, begin=10 * at, wall=0.4 * at, epoch=at) for at in range(20)]
    seen = [mark for epoch in epochs for mark in epoch]
    assert speed_of(seen, steps=10).rate == pytest.approx(25, rel=0.06)


def test_too_little_training_has_no_speed():
    assert speed_of(steady(1000, 0.9), steps=20).rate is None
    assert speed_of([StepMark(1, 0.0), StepMark(2, 5.0)], steps=20).rate is None
    # All steps arrived at once.
    assert speed_of([StepMark(at, 3.0) for at in range(300)], steps=20).rate is None


@pytest.fixture
def planned(tmp_path):
    (tmp_path / "main.py").write_text(SOURCE)

    def plan(*workers, **how):
        return new_scaling(tmp_path, "main.py", workers, cwd=tmp_path, **how)

    return plan


def ran(scaling, number, rate, *, samples=None, state="finished", seconds=4, waits=()):
    """Write the record of a trial that trained so many steps a second.

    If `waits` are given, they are those of two tasks in each step, which takes 100 ms.
    """
    run = RunDirectory.create(scaling.root, "main")
    launch = {"script": "main.py", "cwd": str(scaling.root), "trial": f"{scaling.key}/{number}"}
    tasks = {f"worker:{rank}": {"state": "ended"} for rank in range(len(waits) or 1)}
    run.write({"state": state, "launches": {"worker:0": launch}, "tasks": tasks})
    run.flush()
    common = {"task": "worker:0", "attempt": 1, "source": "report", "kind": "report"}
    told = [
        metric_line(wall=one.wall, step=int(one.step), samples=samples, metrics={}, **common)
        for one in steady(rate, seconds)
    ]
    told += [
        json.dumps({"kind": "steps", "task": f"worker:{rank}", "attempt": 1, "steps": window})
        for rank, wait in enumerate(waits)
        for window in ({"first": at, "wall": 0.1, "waits": wait} for at in (8, 16, 24))
    ]
    run.paths.metrics.write_text("\n".join(told) + "\n")


def speedups(study):
    return [one.speedup and round(one.speedup, 2) for one in study.sizes]


def test_what_keras_counts_says_how_the_samples_grow(planned):
    weak = planned(1, 2, 4)
    for number, rate in [(1, 100), (2, 80), (3, 30)]:
        ran(weak, number, rate, samples=64 * (1, 2, 4)[number - 1])
    study = weak.study()
    assert study.mode == "weak"
    assert speedups(study) == [1, 1.6, 1.2]
    assert [round(study.efficiency(one), 2) for one in study.sizes] == [1, 0.8, 0.3]
    assert scaling_words(study) == (
        "2 workers train 1.6x as fast as 1, 4 train 1.2x: on this machine the 4 share "
        f"{study.plan.cpus} CPUs and its memory, so this says little about 4 machines"
    )
    assert not sweeps(weak.root)
    assert [one.facts.values()["scaling"] for one in weak.outcomes()] == [1, 1, 1]


def test_the_sentence_says_how_much_of_a_step_the_workers_wait_for_each_other(planned):
    scaling = planned(1, 2, mode="weak")
    ran(scaling, 1, 100)
    ran(scaling, 2, 100, waits=(0.06, 0.04))
    study = scaling.study()
    assert [one["waits"] for one in study.rows()] == [None, pytest.approx(0.4)]
    assert scaling_words(study).endswith("; in 40% of a step the 2 only wait for each other")


def test_without_samples_nothing_is_compared_until_it_is_said_what_a_step_is(planned):
    scaling = planned(1, 2)
    ran(scaling, 1, 100)
    ran(scaling, 2, 100)
    study = scaling.study()
    assert speedups(study) == [None, None]
    assert "add --show 1 and --strong if" in "\n".join(scaling_lines(study))
    assert speedups(scaling.study("strong")) == [1, 1]
    assert speedups(scaling.study("weak")) == [1, 2]
    assert scaling_words(scaling.study("strong")).startswith("2 workers train as fast as 1: ")


def test_a_step_with_other_samples_than_was_said_is_reported(planned):
    scaling = planned(1, 2, mode="strong")
    ran(scaling, 1, 100, samples=64)
    ran(scaling, 2, 100, samples=128)
    study = scaling.study()
    assert speedups(study) == [1, 2]
    told = "--strong was given, but a step's samples say otherwise (64 with 1, 128 with 2)"
    assert told in "\n".join(scaling_notes(study))
    assert "--strong" not in "\n".join(scaling_notes(scaling.study("weak")))


def test_sizes_whose_samples_are_not_all_counted_are_compared_as_was_said(planned):
    scaling = planned(1, 2, mode="weak")
    ran(scaling, 1, 100, samples=64)
    ran(scaling, 2, 100)
    assert speedups(scaling.study()) == [1, 2]


def test_the_parameter_with_the_batch_follows_the_workers(planned):
    def batches(**how):
        scaling = planned(1, 2, 4, **how)
        return [(one.params["params"]["batch"], one.params["batch"]) for one in scaling.trials()]

    assert batches(batch="batch") == [(64, 64)] * 3
    assert batches(batch="batch", mode="weak") == [(64, 64), (128, 128), (256, 256)]
    assert batches(worker_batch="batch") == [(64, 64), (32, 64), (16, 64)]
    assert batches(worker_batch="batch", mode="weak", params={"batch": 8}) == [
        (8, 8),
        (8, 16),
        (8, 32),
    ]


@pytest.mark.parametrize(
    ("workers", "how", "text"),
    [
        ((1, 2, 1), {}, "the size 1 is given twice: leave one out, or add --repeat 2"),
        ((2,), {}, "give two or more, as 1 2 4"),
        ((0, 1), {}, "the size 0 trains nothing"),
        ((1, 3), {"worker_batch": "batch"}, "3 workers cannot share batch 64 evenly"),
        ((1, 2), {"batch": "strategy"}, "strategy is no parameter that holds a number of samples"),
        ((1, 2), {"params": {"unit": "8"}}, "did you mean units?"),
        ((1, 2), {"alone": {"no": "8"}}, "no parameter"),
        ((1, 2), {"options": {"coordinator": True}}, "without --coordinator"),
    ],
)
def test_a_study_that_cannot_be_right_is_refused_before_anything_is_written(
    planned, tmp_path, workers, how, text
):
    with pytest.raises(BadArguments) as refusal:
        planned(*workers, **how)
    assert text in str(refusal.value)
    assert not stored(tmp_path, Scaling)


def test_what_was_not_measured_has_no_number_and_a_reason(planned):
    scaling = planned(1, 2, 4, 8, mode="strong", alone={"strategy": "False"})
    ran(scaling, 1, 150)
    ran(scaling, 2, 100)
    ran(scaling, 3, 120, seconds=0.6)
    ran(scaling, 4, 0, seconds=0, state="failed")
    study = scaling.study()
    assert speedups(study) == [1.5, 1, None, None, None]
    text = repr(NotebookScaling(study))
    assert "one process with strategy False trains 1.5x as fast as 1: on this machine" in text
    assert "2 workers: run 3 ended with less than 1 s of training after the warm-up" in text
    assert "4 workers (run 4) failed: no task reported a cause" in text
    assert "8 workers: not measured yet" in text
    assert [one.trial.number for one in scaling.left()] == [5]


def test_repetitions_and_parts_give_the_spread(planned):
    scaling = planned(1, 2, mode="strong", repeat=2)
    for number, rate in [(1, 100), (2, 150), (3, 110), (4, 170)]:
        ran(scaling, number, rate)
    base, two = scaling.study().sizes
    assert base.spread == pytest.approx(0.067, abs=0.001)
    assert two.error > two.speedup * 0.1
    page = NotebookScaling(scaling.study())._repr_html_()
    assert "1.52x ± 0.17" in page
    assert 'src="data:image/svg+xml;base64,' in page
    assert "<script" not in page
