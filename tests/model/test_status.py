"""Snapshots in words."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from mwmagic.dashboard import static
from mwmagic.dashboard.rows import header
from mwmagic.dashboard.terminal import table
from mwmagic.diagnosis import Cause
from mwmagic.model.status import FINAL, remarks, task_words, words

TASK = {
    "state": "running",
    "phase": None,
    "waits": [],
    "code": None,
    "signal": None,
    "oom": None,
    "error": None,
    "ours": False,
}


def task(**fields):
    return {**TASK, **fields}


def run(state, *tasks, **fields):
    named = {f"worker:{index}": one for index, one in enumerate(tasks)}
    return {"state": state, "tasks": named, "cause": None, "restarts": 1, "limit": 3, **fields}


@pytest.mark.parametrize(
    ("snapshot", "said"),
    [
        (run("forming", task(), task(state="absent")), "waiting for worker:1, not launched"),
        (run("running", task(state="starting"), task()), "starting worker:0"),
        (run("running", task(), task()), "running"),
        (run("running", task(phase="starting"), task(phase="connected")), "running"),
        (run("running", task(phase="connected"), task(phase="connected")), "connected"),
        (run("running", task(phase="training"), task(phase="connected")), "training"),
        (
            run("running", task(waits=["worker:2", "worker:1"]), task(waits=["worker:1"])),
            "waiting for worker:1, worker:2 to connect",
        ),
        (run("running", task(state="ended"), task(state="ended")), "running"),
        (run("running", task(), stall={"lines": ["worker:1 waits"]}), "stalled: worker:1 waits"),
        (run("running", task(), stall={"lines": []}), "stalled"),
        (run("ending", task()), "ending"),
        (run("ending", tasks={"evaluator:0": task()}), "ending: evaluator:0 still runs"),
        (run("backoff", task()), "restarting 1 of 3"),
        (run("failed", task()), "failed"),
        (
            run("failed", task(), cause=Cause("worker:1", "exited with code 1").as_dict()),
            "failed: worker:1 exited with code 1",
        ),
        (run("stopped", task()), "stopped"),
        (
            run("finished", task(), trouble="no space left"),
            "finished (its record is incomplete: no space left)",
        ),
    ],
)
def test_a_run_in_words(snapshot, said):
    assert words(snapshot) == said


@pytest.mark.parametrize(
    ("one", "said"),
    [
        (task(state="absent"), "not launched"),
        (task(state="starting"), "starting"),
        (task(), "running"),
        (task(phase="starting"), "running"),
        (task(phase="training"), "training"),
        (task(waits=["worker:1", "ps:0"]), "waiting for worker:1, ps:0"),
        (task(state="ended", code=0), "finished"),
        (task(state="ended", code=2), "exited with code 2"),
        (task(state="ended", signal=11), "killed by SIGSEGV"),
        (task(state="ended", signal=9, ours=True), "ended"),
        (task(state="ended", signal=9, oom=True), "killed by the kernel's out-of-memory killer"),
        (task(state="ended", error="cannot enter /x"), "cannot enter /x"),
    ],
)
def test_a_task_in_words(one, said):
    assert task_words(one) == said


def test_the_final_states_are_the_gangs():
    from mwmagic.gang import State

    assert {state.value for state in State if state.final} == set(FINAL)


NCCL = {
    "name": "nccl-ignored",
    "tasks": ["worker:0", "worker:1"],
    "what": "as the log of worker:1 says",
    "meaning": "This task sees no <GPU>.",
    "remedy": "take RING",
    "link": "",
}
STALLED = {**NCCL, "tasks": ["worker:1"], "meaning": "The others wait.", "remedy": "look there"}
REMARKS = [
    "worker:1: The others wait. Try: look there.",
    "worker:0, worker:1: This task sees no <GPU>. Try: take RING.",
]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, []),
        ({"stall": None, "notices": []}, []),
        ({"stall": {"lines": [], "why": None}, "notices": [NCCL]}, REMARKS[1:]),
        ({"stall": {"lines": [], "why": STALLED}, "notices": [NCCL]}, REMARKS),
    ],
)
def test_remarks(fields, said):
    assert remarks(run("running", task(), **fields)) == said


def test_remarks_are_seen_wherever_a_run_is_shown():
    fields = {"number": 1, "script": "main.py", "started": 0.0, "ended": 1.0, "attempt": 1}
    fields["directory"] = "/home/me/.mwmagic/runs/0001-main"
    row = dict.fromkeys(("progress", "memory", "address", "pid", "log", "size"))
    snapshot = run("finished", task(**row), words="finished", notices=[NCCL], **fields)
    assert static.text(snapshot).endswith("\n" + REMARKS[1])
    assert "no &lt;GPU&gt;. Try: take RING." in static.page(snapshot)
    assert header(snapshot)["notice"] == REMARKS[1]
    assert header({**snapshot, "notice": "cannot"})["notice"] == "cannot\n" + REMARKS[1]
    shown = StringIO()
    Console(file=shown, width=200).print(table(snapshot))
    assert REMARKS[1] in shown.getvalue()
