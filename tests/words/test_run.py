"""A run's status in words and numbers."""

from __future__ import annotations

import html
import math
from dataclasses import replace
from io import StringIO

import pytest
from hypothesis import given
from rich.console import Console
from statuses import RELAXED, json_values

from mwmagic.dashboard import static
from mwmagic.dashboard.rows import View, header, row
from mwmagic.dashboard.terminal import table
from mwmagic.model.findings import Cause, Finding, Position, Remark, Stall, Symptom, Whereabouts
from mwmagic.model.status import (
    Delay,
    GivenUp,
    Importing,
    LiveStatus,
    Reached,
    RunState,
    RunStatus,
    Setback,
    TaskState,
    TaskStatus,
)
from mwmagic.words.failure import remark
from mwmagic.words.run import (
    again_words,
    axis,
    blame,
    buttons,
    clock,
    exit_notice,
    fraction,
    headline,
    left,
    line,
    longest,
    metrics,
    progress_words,
    reached,
    remarks,
    run_tone,
    setback_words,
    setbacks,
    spent,
    task_words,
    tone,
    words,
)


def task(state="running", **fields):
    return TaskStatus(state=TaskState(state), **fields)


def ended(symptom, *, ours=False, **fields):
    return task("ended", finding=Finding(symptom, **fields), ours=ours)


def run(state, *tasks, **fields):
    named = {f"worker:{index}": one for index, one in enumerate(tasks)}
    return RunStatus(**{"state": RunState(state), "tasks": named, "restarts": 1, **fields})


IMPORT = Importing("TensorFlow", 4.2)
CAUSE = Cause(Finding(Symptom.EXITED, "worker:1", code=1))
SPENT = run(
    "failed",
    task(),
    cause=CAUSE,
    attempt=3,
    limit=2,
    restarts=2,
    given_up=GivenUp.RESTARTS,
)
STUCK = replace(SPENT, attempt=5, limit=9, restarts=4, given_up=GivenUp.PROGRESS)
RESUMES = Cause(Finding(Symptom.EXITED, "worker:1", code=42))
AWAY = Finding(Symptom.ELSEWHERE, "worker:0", address="<host>:1")
REMARK = Remark("own-tf-config", ("worker:0", "worker:1"), AWAY)
AT = (Position("worker:1", Whereabouts.IN_USER_CODE, "main.py:3 in f"),)
SAVES = Finding(Symptom.WAITS_IN_SAVE, "worker:1", at="main.py:3 in f")
STALLED = Stall(60.0, "worker:1", AT, Remark("stalled-save", ("worker:1",), SAVES))
SAID = [remark(STALLED.why), remark(REMARK)]
HALF = Reached("train", 2, 3, 5, 10, {"loss": 0.123456, "nan": float("nan")}, 0.5)


IDLE = task(live=LiveStatus(), progress=HALF)
BUSY = task(live=LiveStatus("In [7]", 1000.0), progress=HALF)
BLOCKED = task(live=LiveStatus("In [7]", 990.0, ("worker:1",), "In [7]:3 in <module>"))


def test_what_a_live_session_offers_says_what_it_loses():
    live, over = run("running", IDLE, live=True), run("stopped", live=True)
    for status, label in ((live, "Reset"), (over, "New session")):
        assert header(View(status))["buttons"]["restart"][0] == label
        assert all("variables" in buttons(status)[one][1] for one in ("restart", "stop"))
    assert buttons(run("running", task()))["restart"][0] == "Restart"


def test_how_long_imports_took_is_in_no_text_that_is_compared():
    slow = Finding(Symptom.IMPORTED_LONG, "worker:0", seconds=1.2, detail="pandas")
    status = RunStatus(state=RunState.RUNNING, remarks=(Remark(tasks=("worker:0",), finding=slow),))
    assert "spent 1.2 s on imports" in remarks(status)[0]
    assert "imports" in static.page(status)
    assert "imports" not in static.text(status)


def test_how_long_a_task_is_in_its_cell_and_where_it_waits(monkeypatch):
    monkeypatch.setattr("time.time", lambda: 1067.0)
    assert spent(BUSY) == "for 1:07"
    assert spent(BLOCKED) == "for 1:17, waits at In [7]:3 in <module>"
    assert spent(IDLE) == spent(task()) == ""
    assert longest(run("running", BUSY, BLOCKED, IDLE)) == spent(BLOCKED)
    assert longest(run("running", task())) == ""
    assert row(BUSY)["usage"] == "for 1:07 · 0:08 left"


def test_an_idle_task_is_not_half_way_through_its_training():
    assert (fraction(BUSY), left(BUSY)) == (0.5, "0:08 left")
    assert (fraction(IDLE), left(IDLE)) == (None, "")


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (run("forming", task(), task("absent")), "waiting for worker:1, not launched"),
        (run("running", task("starting"), task()), "starting worker:0"),
        (run("running", task(), task("starting", importing=IMPORT)), "importing TensorFlow (4 s)"),
        (run("running", task(), task()), "running"),
        (run("running", task(phase="starting"), task(phase="connected")), "running"),
        (run("running", task(phase="connected"), task(phase="connected")), "running"),
        (run("running", task(phase="training"), task(phase="connected")), "training"),
        (
            run("running", task(waits=("worker:2", "worker:1")), task(waits=("worker:1",))),
            "waiting for worker:1, worker:2 to connect",
        ),
        (run("running", task("ended"), task("ended")), "running"),
        (run("running", IDLE, IDLE, live=True), "live, idle"),
        (run("running", BUSY, BUSY, live=True), "live, In [7]"),
        (run("running", IDLE, BUSY, live=True), "live; worker:1: In [7]"),
        (
            run("running", BLOCKED, IDLE, BUSY, live=True),
            "live; worker:0: In [7], waits for worker:1; worker:2: In [7]",
        ),
        (run("running", task("starting"), IDLE, live=True), "starting worker:0"),
        (
            run("running", task(), stall=Stall(60.0, "worker:1", AT)),
            "stalled: worker:1 is at main.py:3 in f, in Python code rather than in the framework",
        ),
        (
            run("running", task(), stall=STALLED),
            "stalled: worker:1 waits for the others in a save, at main.py:3 in f",
        ),
        (run("running", task(), stall=Stall()), "stalled"),
        (run("running", task("ended"), placing=""), "waiting for machines"),
        (
            run("running", task("ended"), placing="Slurm job 7 waits (Resources)"),
            "waiting for machines: Slurm job 7 waits (Resources)",
        ),
        (run("ending", task()), "ending"),
        (run("ending", tasks={"evaluator:0": task()}), "ending: evaluator:0 still runs"),
        (run("backoff", task(), limit=3), "restarting 1 of 3"),
        (
            run("backoff", task(), limit=3, setbacks=(Setback(1, CAUSE),)),
            "restarting 1 of 3: worker:1 exited with code 1",
        ),
        (
            run("backoff", task(), setbacks=(Setback(1, RESUMES),)),
            "starting again: worker:1 exited with code 42",
        ),
        (run("failed", task()), "failed"),
        (run("failed", task(), cause=CAUSE), "failed: worker:1 exited with code 1"),
        (SPENT, "failed: worker:1 exited with code 1; all 2 restarts had been used up"),
        (
            run("failed", task(), limit=1, given_up=GivenUp.RESTARTS),
            "failed; its restart had been used up",
        ),
        (
            STUCK,
            words(run("failed", cause=CAUSE))
            + "; no progress: the last 3 attempts made no new step",
        ),
        (
            run("backoff", task(), attempt=3, limit=3, delay=Delay(0.5, "step")),
            "restarting 1 of 3 in 0.5 s, because attempt 3 did not get as far as the one before",
        ),
        (
            run("backoff", task(), attempt=2, limit=3, delay=Delay(8.0)),
            "restarting 1 of 3 in 8 s, because attempt 2 failed as soon as the one before",
        ),
        (run("failed", task(), limit=2), "failed"),
        (run("stopped", task(), limit=1), "stopped"),
        (run("stopped", task()), "stopped"),
        (run("lost", task()), "lost with its supervisor"),
        (
            run("finished", task(), trouble="no space left"),
            "finished (its record is incomplete: no space left)",
        ),
    ],
)
def test_a_run_in_words(status, said):
    assert words(status) == said
    assert headline(status) == f"run 0: {said}"


@pytest.mark.parametrize(
    ("one", "said", "colour"),
    [
        (task("absent"), "not launched", "absent"),
        (task("starting"), "starting", "wait"),
        (task("starting", importing=IMPORT), "importing TensorFlow (4 s)", "wait"),
        (task("ended", importing=IMPORT), "lost", "bad"),
        (task(), "running", "run"),
        (task(phase="starting"), "running", "run"),
        (task(phase="server"), "listening", "run"),
        (task(phase="waiting"), "waiting to connect", "run"),
        (task(phase="connected"), "running", "run"),
        (task(phase="training"), "training", "run"),
        (task(waits=("worker:1", "ps:0")), "waiting for worker:1, ps:0", "wait"),
        (IDLE, "idle", "off"),
        (BUSY, "In [7]", "run"),
        (BLOCKED, "In [7], waits for worker:1", "wait"),
        (task(live=LiveStatus("In [7]", 1.0, asks=True)), "In [7], asks for input", "wait"),
        (replace(BUSY, waits=("worker:1",)), "waiting for worker:1", "wait"),
        (ended(Symptom.EXITED, code=0), "finished", "good"),
        (ended(Symptom.EXITED, code=0, detail="lost 5 bytes"), "lost 5 bytes", "bad"),
        (ended(Symptom.EXITED, code=2), "exited with code 2", "bad"),
        (ended(Symptom.KILLED, signal=11), "killed by SIGSEGV", "bad"),
        (ended(Symptom.KILLED, ours=True, signal=9), "ended", "off"),
        (ended(Symptom.OUT_OF_MEMORY), "killed by the kernel's out-of-memory killer", "bad"),
        (ended(Symptom.NOT_STARTED, detail="no /x"), "could not be started: no /x", "bad"),
        (task("ended"), "lost", "bad"),
    ],
)
def test_a_task_in_words(one, said, colour):
    assert task_words(one) == said
    assert tone(one) == colour


def test_every_state_has_a_tone():
    tones = {state.value: run_tone(RunStatus(state=state)) for state in RunState}
    assert tones == {
        "forming": "wait",
        "running": "run",
        "ending": "wait",
        "backoff": "wait",
        "finished": "good",
        "failed": "bad",
        "stopped": "off",
        "lost": "bad",
        "kept": "good",
    }
    stalled = RunStatus(state=RunState.RUNNING, stall=Stall(60.0))
    assert run_tone(stalled) == "stall"


@pytest.mark.parametrize(
    ("progress", "part", "rest"),
    [
        (None, None, ""),
        (Reached(), None, ""),
        (Reached("train", 2, 3), 1 / 3, ""),
        (HALF, 0.5, "0:08 left"),
        (Reached("bar", step=5, steps=10, seconds_per_step=720.0), 0.5, "1:00:00 left"),
        (Reached("print", epoch=3, epochs=4), 0.75, ""),
        (Reached("report", epoch=3, epochs=9, step=85, steps=100), 2.85 / 9, ""),
        (Reached("report", epoch=2, epochs=9, step=85, steps=100, first=0), 2.85 / 9, ""),
        (Reached("print", epoch=0, epochs=4, first=0), 0.25, ""),
        (Reached("print", epoch=5, epochs=4), 1.0, ""),
        (Reached("print", step=5, steps=0), None, ""),
        (Reached("bar", step=0, steps=2, seconds_per_step=1e308, epochs=9), 0.0, ""),
        (Reached("print", 1, 2, step=5, steps=5), 0.5, ""),
    ],
)
def test_how_much_of_the_training_is_done(progress, part, rest):
    assert fraction(task(progress=progress)) == (part and pytest.approx(part))
    assert left(task(progress=progress)) == rest
    assert left(task("ended", progress=progress)) == ""


def test_progress_in_words():
    assert progress_words(HALF) == "epoch 2/3 · step 5/10"
    assert progress_words(Reached(step=7)) == "step 7"
    assert progress_words(None) == progress_words(Reached()) == ""
    assert axis(HALF) == axis(Reached(step=7)) == axis(None) == "step"
    assert axis(Reached(epoch=2)) == "epoch"
    assert metrics(HALF) == [("loss", "0.1235"), ("nan", "nan")]
    many = dict.fromkeys(("acc", "val_acc", "val_loss", "loss", "b"), 1.0)
    told = [name for name, _ in metrics(Reached(metrics=many))]
    assert told == ["loss", "val_loss", "acc", "val_acc", "b"]
    assert reached(HALF) == "epoch 2/3 step 5/10  loss 0.1235  nan nan"
    assert reached(Reached(metrics={"loss": 1e-9})) == "loss 1e-09"
    assert [clock(seconds) for seconds in (0, 67.4, 7267)] == ["0:00", "1:07", "2:01:07"]


def test_one_line_names_the_first_task_that_reports():
    status = run("running", task(), task(progress=HALF), task(progress=Reached(step=1)), number=7)
    assert line(status) == "run 7: running  epoch 2/3 step 5/10  loss 0.1235  nan nan"
    assert line(run("running", task())) == "run 0: running"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, []),
        ({"stall": Stall(), "remarks": (REMARK,)}, SAID[1:]),
        ({"stall": STALLED, "remarks": (REMARK,)}, SAID),
    ],
)
def test_remarks(fields, said):
    assert remarks(run("running", task(), **fields)) == said


def test_a_loss_that_is_no_number_is_pointed_out_wherever_a_run_is_shown():
    good, bad, worse = (
        task(progress=Reached(metrics={"rate": math.nan, "val_loss": value}))
        for value in (0.5, math.nan, -math.inf)
    )
    for status, said in (
        (run("finished", bad, bad), "val_loss is nan: training diverged"),
        (run("running", good, worse), "val_loss is -inf on worker:1: training diverged"),
    ):
        assert said in header(View(status))["notice"]
        for shown in (static.text(status), static.page(status), drawn(status)):
            assert said in " ".join(shown.split())
    assert remarks(run("finished", good)) == []


def drawn(status):
    """Return what a terminal shows."""
    shown = StringIO()
    Console(file=shown, width=400).print(table(status))
    return shown.getvalue()


def test_remarks_are_seen_wherever_a_run_is_shown():
    status = run("finished", ended(Symptom.EXITED, code=0), remarks=(REMARK,), ended=1.0)
    assert static.text(status).endswith("\n" + SAID[1])
    assert "listened at &lt;host&gt;:1, not" in static.page(status)
    assert header(View(status))["notice"] == SAID[1]
    assert header(View(status, refusal="cannot"))["notice"] == "cannot\n" + SAID[1]
    assert SAID[1] in drawn(status)


def test_every_view_says_the_same_of_a_lost_run():
    status = run("running", task(phase="training", progress=HALF), number=7).lost()
    said = "lost with its supervisor"
    assert static.text(status) == (
        f"run 7: {said}\n  worker:0  lost  epoch 2/3 step 5/10  loss 0.1235  nan nan"
    )
    assert f"run 7: {said}" in static.page(status)
    assert f"run 7: {said}" in drawn(status)
    shown = header(View(status))
    assert (shown["words"], shown["over"], shown["tone"]) == (said, True, "bad")
    assert shown["actions"] == ["restart"]
    assert row(status.tasks["worker:0"])["state"] == "lost"


@RELAXED
@given(json_values())
def test_whatever_a_record_holds_can_be_shown(values):
    status = RunStatus.from_json(values)
    said = words(status)
    assert said in static.text(status)
    assert said in header(View(status))["words"]
    assert static.page(status, label="x")
    assert all(row(one) for one in status.tasks.values())
    assert table(status)


def test_every_view_of_a_failure_says_that_its_restarts_had_been_used_up():
    used = "all 2 restarts had been used up"
    assert blame(SPENT)[-1] == f"  This was attempt 3: {used} (--restarts)."
    assert used in header(View(SPENT))["cause"]
    assert used in exit_notice(SPENT)
    for view in (static.text, static.page):
        assert used in view(SPENT)
    assert blame(STUCK)[-1].startswith("  This was attempt 5: no progress: ")
    once = replace(SPENT, given_up=None)
    assert not [one for one in (static.page(once), exit_notice(once)) if "used up" in one]


def test_every_view_lists_why_earlier_attempts_failed():
    told = replace(CAUSE, exception="ValueError: <b>broke</b>\nin two lines")
    first = Setback(1, told, Reached(epoch=3, epochs=5, step=40), Reached(epoch=3, epochs=5))
    again = run("finished", task(), attempt=3, limit=3, setbacks=(first, Setback(2, CAUSE)))
    failed = (
        "attempt 1, at epoch 3/5 step 40: worker:1 exited with code 1: ValueError: <b>broke</b>"
    )
    lines = [f"{failed}; restarted from epoch 3/5", "attempt 2: worker:1 exited with code 1"]
    assert setbacks(again) == lines
    assert header(View(again))["earlier"] == ["How 2 earlier attempts ended", *lines]
    assert header(View(again))["unfolded"]
    assert not header(View(replace(again, setbacks=4 * (first,))))["unfolded"]
    for one in lines:
        assert one in static.text(again)
        assert html.escape(one) in static.page(again)
        assert one in " ".join(drawn(again).split())
    assert "<details open>" in static.page(again)
    assert header(View(run("finished", task())))["earlier"] == []
    assert "<details" not in static.page(run("finished", task()))


def test_many_failed_attempts_are_folded():
    many = tuple(Setback(number, CAUSE) for number in range(1, 31))
    again = run("running", task(), attempt=31, limit=40, setbacks=many)
    assert "<details><summary>How 30 earlier attempts ended" in static.page(again)
    assert static.text(again).count("attempt 30: ") == 1
    assert "27 earlier attempts ended before these" in static.text(again)
    assert len(setbacks(again)) == 21
    assert setbacks(again)[0] == "10 earlier attempts ended before these"


def test_what_a_run_survives_is_said_in_a_line():
    told = replace(CAUSE, exception="ValueError: broke\nin two lines")
    again = run("running", task(), attempt=2, limit=3, restarts=1)
    assert setback_words(again, Setback(1, told)) == (
        "attempt 1 failed: worker:1 exited with code 1: ValueError: broke; "
        "attempt 2 follows, restart 1 of 3"
    )
    assert setback_words(again, Setback(1, RESUMES)) == (
        "attempt 1 asked to be started again: worker:1 exited with code 42; attempt 2 follows"
    )
    assert setback_words(again, Setback(1)) == (
        "attempt 1 failed; attempt 2 follows, restart 1 of 3"
    )


def test_a_later_attempt_says_where_it_trains():
    at = task(progress=Reached("report", epoch=4, epochs=9))
    assert again_words(run("running", at, attempt=2)) == "attempt 2 is training, at epoch 4/9"
    assert again_words(run("running", at)) == ""
    assert again_words(run("running", task(), attempt=2)) == ""
