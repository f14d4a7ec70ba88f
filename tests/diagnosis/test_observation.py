"""What is told of a gang from the logs of its tasks."""

from __future__ import annotations

import pytest

from mwmagic.diagnosis import Observation, why_stalled
from mwmagic.diagnosis.observation import parse

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


FREES = "Current thread 0x00007f146283eb80 (most recent call first):\n  {}<no Python frame>\n"
BUSY = 'Thread 0x00007f146283eb80 (most recent call first):\n  File "/home/ada/a.py", line 3 in f\n'


@pytest.mark.parametrize("collects", ["", "Garbage-collecting\n  "])
def test_a_finished_program_whose_interpreter_frees_something_does_not_end(collects):
    frees = parse(FREES.format(collects))
    why = why_stalled([Observation("worker:0", over=True, stack=frees), Observation("worker:1")])
    assert why is not None
    assert (why.known, why.tasks) == ("stalled-end", ("worker:0",))
    assert why_stalled([Observation("worker:0", stack=frees)]) is None, "its program goes on"


def test_a_finished_program_with_a_thread_that_runs_python_is_not_said_to_be_freed():
    waits = parse(FREES.format("") + BUSY)
    assert why_stalled([Observation("worker:0", over=True, stack=waits)]) is None
