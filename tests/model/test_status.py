"""How runs and tasks are, as it is sent and kept."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from statuses import RELAXED, json_values

from mwmagic.model.findings import (
    Cause,
    Finding,
    Location,
    Position,
    Remark,
    Stall,
    Symptom,
    Whereabouts,
)
from mwmagic.model.status import (
    Delay,
    GivenUp,
    Reached,
    RunState,
    RunStatus,
    Setback,
    TaskState,
    TaskStatus,
)

NAN, INF = float("nan"), float("inf")
AT = (Position("worker:1", Whereabouts.IN_USER_CODE, "main.py:3 in f"),)
SLEEPS = Finding(Symptom.KEEPS_OTHERS_WAITING, positions=AT)
REMARK = Remark("stalled-outside", ("worker:1",), SLEEPS, ("gap",))
WHERE = Location("main.py", 3, "f", "f()")
EXITED = Finding(Symptom.EXITED, "worker:1", code=1)
CAUSE = Cause(EXITED, "OSError: once", WHERE, consequences=("worker:0",))
TASK = TaskStatus(
    TaskState.RUNNING,
    "localhost:1",
    123,
    warm=True,
    phase="training",
    waits=("worker:1",),
    progress=Reached("train", 2, 3, 5, 10, {"loss": 0.5, "worst": -INF}, 0.25),
    cpu=1.5,
    memory=2.0**30,
    log="/x/.mwmagic/runs/1/attempt-1/worker-0.log",
    size=9,
)
RUN = RunStatus(
    7,
    "/x/.mwmagic/runs/0007-main",
    "main.py",
    RunState.RUNNING,
    attempt=2,
    restarts=1,
    limit=3,
    delay=Delay(0.5, "step"),
    placing="Slurm job 4711 waits",
    given_up=GivenUp.PROGRESS,
    unplaced="n2 does not answer",
    started=1.5,
    tasks={
        "worker:0": TASK,
        "worker:1": TaskStatus(),
        "ps:0": TaskStatus(TaskState.ENDED, finding=EXITED),
    },
    trouble="no space left",
    stall=Stall(60.0, "worker:1", AT, REMARK),
    setbacks=(Setback(1, CAUSE, Reached(epoch=2), Reached(epoch=1)),),
    remarks=(REMARK,),
    examined=1,
)


def test_a_state_is_a_json_value_and_four_are_final():
    assert json.dumps(RunState.FORMING) == '"forming"'
    final = {state for state in RunState if state.final}
    assert final == {RunState.FINISHED, RunState.FAILED, RunState.STOPPED, RunState.LOST}


@pytest.mark.parametrize("state", RunState)
def test_a_run_is_over_when_nothing_of_it_is_alive(state):
    assert RunStatus(state=state).over == state.final


def test_what_is_sent_is_read_back():
    sent = json.dumps(RUN.as_json(), allow_nan=False)
    assert RunStatus.from_json(json.loads(sent)) == RUN


def test_numbers_that_are_not_finite_are_sent_as_valid_json():
    reached = Reached(metrics={"a": NAN, "b": INF, "c": -INF, "d": 1.0})
    sent = json.dumps(reached.as_json(), allow_nan=False)
    read = Reached.from_json(json.loads(sent)).metrics
    assert math.isnan(read.pop("a"))
    assert read == {"b": INF, "c": -INF, "d": 1.0}


def test_a_record_may_be_newer_or_older():
    sent = RUN.as_json()
    newer = {**sent, "future": [1], "tasks": {"worker:0": {**TASK.as_json(), "gpu": 0}}}
    assert RunStatus.from_json(newer).tasks == {"worker:0": TASK}
    assert RunStatus.from_json({"number": 7}) == RunStatus(7)
    assert RunStatus.from_json({}).state is RunState.LOST
    assert RunStatus.from_json({"state": "dreaming"}).state is RunState.LOST


@pytest.mark.parametrize(
    ("damaged", "read"),
    [
        ({"number": "7"}, RunStatus()),
        ({"number": True, "started": False}, RunStatus()),
        ({"number": 7.5}, RunStatus()),
        ({"started": 10**400, "number": 10**400}, RunStatus()),
        ({"started": NAN, "ended": INF}, RunStatus()),
        ({"started": 3}, RunStatus(started=3.0)),
        ({"tasks": ["worker:0"]}, RunStatus()),
        (
            {"tasks": {"worker:0": None, "worker:1": {"pid": "x", "waits": [1, "a"]}}},
            RunStatus(tasks={"worker:1": TaskStatus(waits=("a",))}),
        ),
        ({"cause": "worker:0"}, RunStatus()),
        ({"cause": {"known": "b", "log": None}}, RunStatus(cause=Cause(known="b"))),
        ({"stall": {"positions": "abc", "why": []}}, RunStatus(stall=Stall())),
        ({"setbacks": [None, 1, {"attempt": 2}]}, RunStatus(setbacks=(Setback(2),))),
        ([], RunStatus()),
        (None, RunStatus()),
        ("finished", RunStatus()),
    ],
)
def test_what_is_damaged_gets_its_default(damaged, read):
    assert RunStatus.from_json(damaged) == read


@RELAXED
@given(json_values())
def test_any_json_is_read_without_an_error(values):
    sent = RunStatus.from_json(values).as_json()
    read = RunStatus.from_json(json.loads(json.dumps(sent, allow_nan=False)))
    assert read.as_json() == sent


def test_a_run_is_lost_with_its_supervisor_unless_it_had_ended():
    lost = RUN.lost()
    assert lost.over
    assert (lost.state, lost.stall, lost.setbacks) == (RunState.LOST, None, RUN.setbacks)
    states = {name: task.state.value for name, task in lost.tasks.items()}
    assert states == {"worker:0": "ended", "worker:1": "absent", "ps:0": "ended"}
    assert lost.tasks["ps:0"].code == 1
    assert lost.tasks["worker:0"].code is None
    assert lost.lost() == lost
    for state in (RunState.FINISHED, RunState.FAILED, RunState.STOPPED):
        assert RunStatus(state=state).lost() == RunStatus(state=state)
