"""How far a task's training is, from its reports and its log."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mwmagic.logs import Guard
from mwmagic.supervisor.training import (
    FitVariables,
    History,
    Imports,
    OutsideScope,
    TooLate,
    Training,
    report_in,
)

BAR = b"Epoch 1/3\n\r 4/10 \xe2\x94\x81\xe2\x94\x81 1s 64ms/step - accuracy: 0.5000 - loss: 0.5000"


def packet(kind="train", **fields):
    metrics = fields.pop("metrics", {})
    return json.dumps({"kind": kind, "metrics": metrics, **fields})


def unexpected(fault):
    raise AssertionError(str(fault))


def trained(*said):
    training = Training(Guard(unexpected))
    for one in said:
        if isinstance(one, bytes):
            training.printed(one.decode())
        else:
            assert training.on_packet(one) is not None
    return training.latest


def test_a_report():
    training = Training(Guard(unexpected))
    report = training.on_packet(
        packet(epoch=1, epochs=3, step=4, steps=10, metrics={"loss": "NaN"})
    )
    assert (report.epoch, report.epochs, report.step, report.steps) == (1, 3, 4, 10)
    assert math.isnan(report.metrics["loss"])
    assert training.latest == report


def test_the_log_is_the_fallback():
    latest = trained(BAR)
    assert (latest.epoch, latest.step, latest.metrics["loss"]) == (1, 4, 0.5)


def test_a_report_wins_over_the_log_before_and_after():
    report = packet(epoch=1, step=5, metrics={"loss": 0.123})
    for order in ((BAR, report), (report, BAR)):
        latest = trained(*order)
        assert (latest.step, latest.metrics) == (5, {"loss": 0.123, "accuracy": 0.5})
    training = Training(Guard(unexpected))
    training.on_packet(report)
    assert [one.metrics for one in training.printed(BAR.decode()) if one.metrics] == [
        {"accuracy": 0.5}
    ]


def test_a_report_without_a_place_leaves_it_to_the_log():
    latest = trained(packet("report", metrics={"rate": 0.1}), BAR)
    assert (latest.step, latest.metrics["rate"]) == (4, 0.1)


def test_what_has_not_changed_may_be_left_out():
    latest = trained(
        packet("report", epoch=2, epochs=3, step=7, metrics={"loss": 1.0}),
        packet("report", metrics={"rate": 0.1}),
        packet("report", step=8),
    )
    assert (latest.epoch, latest.epochs, latest.step) == (2, 3, 8)
    assert latest.metrics == {"loss": 1.0, "rate": 0.1}
    assert trained(packet("report", epoch=1, step=9), packet("report", epoch=2)).step is None


def test_validation_and_evaluation_do_not_move_it():
    latest = trained(
        packet(epoch=1, epochs=3, step=10, steps=10, seconds_per_step=0.5, metrics={"loss": 1}),
        packet("validation", epoch=1, final=True, metrics={"val_loss": 2}),
        packet("evaluate", final=True, metrics={"loss": 3}),
        packet("report", step=77, metrics={"mine": 4}),
    )
    assert (latest.kind, latest.step, latest.seconds_per_step) == ("train", 10, 0.5)
    assert latest.metrics == {"loss": 1, "val_loss": 2, "mine": 4}


def test_another_fit_does_not_keep_the_values_of_the_one_before():
    one = packet(epoch=2, epochs=2, step=9, steps=9, metrics={"loss": 1})
    end = packet("validation", epoch=2, final=True, metrics={"val_loss": 2})
    assert trained(one, end, packet(epochs=5, steps=9)).metrics == {}
    without_validation = packet(epoch=1, epochs=5, step=1, metrics={"loss": 3})
    assert trained(one, end, without_validation).metrics == {"loss": 3}
    mine = packet("report", epoch=2, metrics={"loss": 1, "val_loss": 2})
    assert trained(mine, packet("report", epoch=0, metrics={"loss": 3})).metrics == {"loss": 3}
    bar = b"\nEpoch 1/1\n\r 4/10 \xe2\x94\x81\xe2\x94\x81 1s 64ms/step - loss: 0.2500\n"
    printed = b"Epoch 3/3\n\r10/10 \xe2\x94\x81 1s 64ms/step - loss: 0.5000 - val_loss: 0.7500\n"
    assert trained(printed, bar).metrics == {"loss": 0.25}


def test_a_program_may_count_its_epochs_from_0():
    training = Training(Guard(unexpected))
    for epoch, first in (1, 1), (0, 0), (2, 0):
        training.on_packet(packet("report", epoch=epoch))
        assert training.first == first


def test_the_variables_at_a_fit():
    said = {"kind": "given", "fit": 2, "given": {"units": 64, "sizes": [1, 2], "name": "a"}}
    assert report_in(json.dumps(said)) == FitVariables(
        2, {"units": 64, "sizes": [1, 2], "name": "a"}
    )


def test_a_part_of_a_history():
    said = {"kind": "history", "fit": 1, "start": 0, "name": "loss", "values": [1, "Infinity"]}
    assert report_in(json.dumps(said)) == History(1, "loss", 0, (1.0, math.inf))


def test_names_are_such_that_every_encoder_accepts_them():
    assert report_in(packet(metrics={"l\ud83d": 1})).metrics == {"l\ufffd": 1}
    said = {"kind": "history", "fit": 1, "start": 0, "name": "l\ud83d", "values": []}
    assert report_in(json.dumps(said)).name == "l\ufffd"


@pytest.mark.parametrize(
    "data",
    [
        "",
        "[]",
        "{}",
        packet("other"),
        packet(metrics=[]),
        packet(metrics={"loss": "x"}),
        packet(metrics={"loss": float("nan")}),
        packet(metrics={"loss": 10**400}),
        packet(metrics={"n" * 101: 1}),
        packet(metrics={str(n): n for n in range(101)}),
        packet(step=True),
        packet(step=10**13),
        packet(epoch="1"),
        packet(pad="x" * 2**15),
        '{"kind": "history"}',
        '{"kind": "given", "fit": 1}',
        '{"kind": "given", "fit": "1", "given": {}}',
        '{"kind": "history", "fit": 1, "start": 0, "name": "a", "values": [null]}',
        "[" * 10_000,
    ],
)
def test_what_is_no_report_changes_nothing(data):
    training = Training(Guard(unexpected))
    assert training.on_packet(data) is None
    assert training.latest is None
    assert training.unreadable


@given(st.text() | st.recursive(st.none() | st.floats() | st.text(), st.lists).map(json.dumps))
def test_garbage_never_raises(data):
    Training(Guard(unexpected)).on_packet(data)


@pytest.mark.slow
def test_a_packet_that_cannot_be_read_is_noted_once_for_each_task(cluster):
    code = "from mwmagic.worker.line import line\nfor _ in range(3):\n    line().send(b'{}')"
    run = cluster(2).run("main.py", source=code).wait(120)
    noted = run.record.events("unreadable")
    assert sorted(event["task"] for event in noted) == ["worker:0", "worker:1"]
    assert all("kind of report" in event["error"] for event in noted)
    assert all(event["attempt"] == 1 for event in noted)


def test_a_variable_that_is_set_too_late():
    said = {"kind": "late", "name": "KERAS_BACKEND", "at": "main.py:3"}
    assert report_in(json.dumps(said)) == TooLate("KERAS_BACKEND", "main.py:3")
    for wrong in ({"name": 1}, {"at": None}, {"name": "A" * 9999}):
        with pytest.raises(ValueError, match="name"):
            report_in(json.dumps({**said, **wrong}))


def test_how_long_imports_took():
    training = Training(Guard(unexpected))
    said = {"kind": "imports", "seconds": {"pandas": 0.5, "a.b": 1, "a b": 2, "c": -1, "d": None}}
    assert training.on_packet(json.dumps(said)) == Imports({"pandas": 0.5, "a.b": 1.0})
    assert training.imports == {"pandas": 0.5, "a.b": 1.0}
    assert training.latest is None
    for wrong in ([], {"a": "x"}, {str(number): 1 for number in range(9999)}, None):
        assert training.on_packet(json.dumps({"kind": "imports", "seconds": wrong})) is None
    assert training.imports == {"pandas": 0.5, "a.b": 1.0}


def test_a_model_outside_its_strategys_scope_is_noted():
    training = Training(Guard(lambda _: None))
    assert not training.outside
    assert training.on_packet('{"kind": "outside"}') == OutsideScope()
    assert training.outside
    assert training.latest is None
