"""What slows down one of two real workers is named, and an undisturbed training is not accused."""

import os

import pytest
from slowed import PROGRAM

from mwmagic.client.records import explained

pytestmark = [pytest.mark.slow, pytest.mark.tensorflow]


def test_the_task_its_line_and_what_it_costs_are_named_and_recorded(warm_pair, tmp_path):
    params = {"CAUSE": "input-waits", "SLOW": "worker:1"}
    run = warm_pair.run("main.py", source=PROGRAM, cwd=tmp_path, params=params)
    run.wait(timeout=240)
    slow = run.status().slow
    assert (slow.cause.value, slow.task, slow.when) == ("input-waits", "worker:1", "always")
    assert slow.at.endswith(" in decode")
    assert slow.without < slow.step
    found, lines = explained(run.record)
    assert found["slow"]["task"] == "worker:1"
    assert "worker:1 holds up every step" in lines[-1]
    used = run.usage(frame=True)
    assert {*used["task"]} == {"worker:0", "worker:1"}
    assert used["cpus"].between(0, os.cpu_count()).all()
    assert used["memory"].min() > 50 * 2**20


def test_callbacks_of_one_task_are_named_without_the_waiting_of_the_other(warm_pair, tmp_path):
    params = {"CAUSE": "callbacks", "SLOW": "worker:0"}
    run = warm_pair.run("main.py", source=PROGRAM, cwd=tmp_path, params=params)
    run.wait(timeout=240)
    slow = run.status().slow
    assert (slow.cause.value, slow.task) == ("callbacks", "worker:0")
    assert slow.at.endswith(" in on_train_batch_end")


def test_an_undisturbed_training_is_not_accused(warm_pair, tmp_path):
    run = warm_pair.run("main.py", source=PROGRAM, cwd=tmp_path)
    run.wait(timeout=240)
    assert run.status().slow is None
