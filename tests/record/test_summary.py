"""What a run came to."""

from __future__ import annotations

import math

import pytest

from mwmagic.record.metrics import Durations, Extremes, rises


@pytest.mark.parametrize(
    "name", ["accuracy", "val_accuracy", "sparse_categorical_accuracy", "Top-5 acc", "AUC", "f1"]
)
def test_more_of_some_metrics_is_better(name):
    assert rises(name)


@pytest.mark.parametrize("name", ["loss", "val_loss", "mae", "accumulated", "dice_loss", "x", ""])
def test_less_of_all_others_is_better(name):
    assert not rises(name)


def test_the_last_and_the_best_are_kept_with_their_place():
    extremes = Extremes()
    for epoch, (loss, accuracy) in enumerate([(3.0, 0.1), (1.0, 0.7), (2.0, 0.5)], start=1):
        metrics = {"loss": loss, "accuracy": accuracy}
        extremes.add("worker:0", {"attempt": 1, "epoch": epoch, "metrics": metrics})
    extremes.add("worker:1", {"attempt": 1, "metrics": {"loss": math.nan}})
    kept = extremes.as_json()
    second = {"attempt": 1, "epoch": 2, "step": None}
    assert kept["worker:0"]["loss"]["best"] == {"value": 1.0, **second}
    assert kept["worker:0"]["accuracy"]["best"] == {"value": 0.7, **second}
    assert kept["worker:0"]["loss"]["last"]["value"] == 2.0
    assert kept["worker:0"]["loss"]["last"]["epoch"] == 3
    assert kept["worker:1"]["loss"]["best"] is None


def test_a_number_that_is_none_is_never_the_best():
    extremes = Extremes()
    for value in (math.nan, 2.0, None, -math.inf, 1.0, math.nan):
        extremes.add("worker:0", {"metrics": {"loss": value}})
    assert extremes.as_json()["worker:0"]["loss"]["best"]["value"] == 1.0


def test_seconds_are_counted_by_state():
    durations = Durations("forming", 10.0)
    durations.enter("running", 11.0)
    durations.enter("backoff", 15.0)
    durations.enter("running", 16.0)
    assert durations.as_json(18.5) == {
        "total": 8.5,
        "states": {"forming": 1.0, "running": 6.5, "backoff": 1.0},
    }
    durations.enter("finished", 20.0)
    assert durations.as_json(None)["total"] == 10.0
    assert durations.as_json(None)["states"]["finished"] == 0.0
