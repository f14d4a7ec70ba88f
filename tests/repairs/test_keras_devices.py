"""Workers with several devices each reach what one process reaches, as those with one do."""

import json

import pytest
from keras_comparison import ROWS, differences, gang

pytestmark = [pytest.mark.slow, pytest.mark.tensorflow, pytest.mark.timeout(1800)]

# Where the replicas of a worker could get into each other's way, or share what is each one's own.
TRIED = [
    "fit_evaluate_predict",
    "steps_per_execution",
    "fewer_samples_than_workers",
    "masks",
    "loss_added_in_a_layer",
    "train_step_with_its_own_loss",
    "adversaries",
    "loop_that_builds",
    "batch_norm",
    "synchronized_batch_norm",
    "regularizers",
    "mixed_precision",
    "gradient_accumulation",
    "on_batch",
]


# Four workers take long; these are the rows that depend on how replicas are divided among them.
OF_FOUR = ["fewer_samples_than_workers", "loss_added_in_a_layer", "batch_norm", "regularizers"]


# A worker that has no other beside it makes no connection to its address.
ALONE = {"cluster": {"worker": ["localhost:1"]}, "task": {"type": "worker", "index": 0}}

single = gang(1, TRIED)
one_of_four = gang(1, TRIED, ROWS_DEVICES="4", TF_CONFIG=json.dumps(ALONE))
two_of_two = gang(2, TRIED, ROWS_DEVICES="2")
four_of_one = gang(4, OF_FOUR)


@pytest.mark.parametrize("row", [row for row in TRIED if ROWS[row].single])
def test_workers_with_two_devices_reach_the_numbers_of_one_process(single, two_of_two, row):
    assert single.error(row) is two_of_two.error(row) is None
    assert differences(two_of_two.of(row), single.of(row), ROWS[row]) == []


@pytest.mark.parametrize("row", [row for row in TRIED if ROWS[row].single])
def test_a_worker_with_four_devices_reaches_the_numbers_of_one_process(single, one_of_four, row):
    assert single.error(row) is one_of_four.error(row) is None
    assert differences(one_of_four.of(row), single.of(row), ROWS[row]) == []


@pytest.mark.parametrize("row", OF_FOUR)
def test_four_replicas_reach_the_same_on_one_worker_as_on_four(one_of_four, four_of_one, row):
    assert one_of_four.error(row) is four_of_one.error(row) is None
    assert differences(one_of_four.of(row), four_of_one.of(row), ROWS[row]) == []


@pytest.mark.parametrize("row", OF_FOUR)
def test_four_replicas_reach_the_same_on_two_workers_as_on_four(two_of_two, four_of_one, row):
    assert two_of_two.error(row) is four_of_one.error(row) is None
    assert differences(two_of_two.of(row), four_of_one.of(row), ROWS[row]) == []
