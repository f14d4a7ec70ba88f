"""How far a process came, where that can be compared between attempts."""

import json

import pytest

from mwmagic.gang import TrainingPoint
from mwmagic.logs import Guard
from mwmagic.supervisor.training import Comparison, Training


def train(*said):
    """Return what is furthest after texts of the log and packets of the line."""
    training = Training(Guard(lambda fault: pytest.fail(str(fault))))
    for one in said:
        if isinstance(one, str):
            training.printed(one)
        else:
            training.on_packet(json.dumps({"kind": "train", **one}))
    return training.furthest


at = TrainingPoint
KERAS = "Epoch 2/3\n 5/10 ━━━━ 1s 100ms/step - loss: 0.5000"


@pytest.mark.parametrize(
    ("said", "point"),
    [
        (["epoch 1 step 5 loss 0.5\n", "epoch 2 step 1 loss 0.4\n"], at(2, 1)),
        (["step 7 loss 0.5\n"], at(0, 7)),
        ([KERAS], at(2, 5)),
        ([KERAS, {"epoch": 2, "step": 4}], at(2, 4)),  # what is printed is ahead
        (
            [{"epoch": 1, "step": 9}, {"kind": "validation"}, {"epoch": 2, "step": 0}],
            at(2, 0),
        ),
        ([{"kind": "evaluate", "step": 9}], None),
        (["up\n"], None),
        (["epoch 1 loss 0.5\n", "epoch 2 loss 0.4\n"], None),  # between them steps are unknown
        (["epoch 1 step 5 loss 1\n", "epoch 1 step 1 loss 1\n"], None),  # another training
        ([" 5/10 ━━━━ 1s 100ms/step - loss: 0.5000"], None),  # of `evaluate`, perhaps
    ],
)
def test_a_place_is_known_where_steps_are_and_training_goes_only_on(said, point):
    assert Comparison().of(train(*said)) == point


def test_a_process_without_a_step_has_not_begun_if_the_run_showed_steps_before():
    comparison = Comparison()
    assert comparison.of(train("up\n")) is None
    assert comparison.of(train(KERAS)) == at(2, 5)
    assert comparison.of(train("up\n")) == at()
    assert comparison.of(train(KERAS, "\nEpoch 1/3\n")) is None
    assert comparison.of(train(KERAS)) is None
