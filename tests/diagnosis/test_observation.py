"""What is told of a gang from the logs of its tasks."""

from __future__ import annotations

import pytest

from mwmagic.diagnosis import Observation, why_stalled

TASK = "/job:worker/replica:0/task:1"
IN_ERROR = f"{TASK} unexpectedly tried to connect while it is already in error. ResetTask() should"
ANOTHER = f"{TASK} unexpectedly tried to connect with a different incarnation. It has likely"
MISMATCH = f"{TASK} Heartbeat: Incarnation ID mismatch: expecting 13278007 but got 6710453388. The"


@pytest.mark.parametrize("refusal", [ANOTHER, MISMATCH, f"{IN_ERROR} Existing error: {MISMATCH}"])
def test_a_second_process_is_reported_by_the_leaders_refusal(refusal):
    why = why_stalled(
        [Observation("worker:0", log=f"Epoch 1/3\n{refusal}\n"), Observation("worker:1")]
    )
    assert why is not None
    assert (why.known, why.tasks) == ("stalled-second-process", ("worker:1",))


def test_a_task_in_error_has_not_for_that_a_second_process():
    assert why_stalled([Observation("worker:0", log=IN_ERROR), Observation("worker:1")]) is None
