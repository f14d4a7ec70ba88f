"""What a record keeps of metrics, read back."""

from __future__ import annotations

import json
import math
import sys

import pytest

from mwmagic.errors import NoRun, NotInstalled
from mwmagic.record import Record, RunDirectory
from mwmagic.record.metrics import data_frame, history, metrics, rows


@pytest.fixture
def directory(tmp_path):
    return RunDirectory.create(tmp_path, "main")


def read(directory):
    return Record(directory.path, directory.number)


def entry(source="report", kind="train", task="worker:0", attempt=1, **fields):
    return {"source": source, "kind": kind, "task": task, "attempt": attempt, **fields}


def write(directory, *entries):
    for one in entries:
        directory.metric(**one)


def values(entries):
    return [(one["task"], one["attempt"], one["source"], one["metrics"]) for one in entries]


def test_numbers_come_back_and_the_file_is_valid_json(directory):
    told = {"loss": math.nan, "high": math.inf, "low": -math.inf, "whole": 3}
    write(directory, entry(metrics=told, step=1))
    text = (directory.path / "metrics.jsonl").read_text()
    assert json.loads(text, parse_constant=pytest.fail)
    [found] = read(directory).metrics()
    assert math.isnan(found["metrics"].pop("loss"))
    assert found["metrics"] == {"high": math.inf, "low": -math.inf, "whole": 3.0}
    assert (found["step"], found["epoch"], found["final"]) == (1, None, False)


def test_a_damaged_field_costs_no_more_than_itself(directory):
    write(
        directory,
        entry(metrics={"loss": 1.0}, step=10**400, seconds_per_step="fast", final="no"),
        entry(metrics={"loss": 2.0}, step=2, seconds_per_step=0.5, final=True),
        entry(metrics={"loss": 3.0}, step=3, seconds_per_step=-1),
    )
    names = ("step", "seconds_per_step", "final")
    found = [tuple(one[name] for name in names) for one in read(directory).metrics()]
    assert found == [(None, None, False), (2, 0.5, True), (3, None, False)]


def test_reports_win_over_the_log_whichever_came_first(directory):
    write(
        directory,
        entry("log", metrics={"loss": 0.1, "other": 1.0}),
        entry(metrics={"loss": 0.12345}),
        entry("log", metrics={"loss": 0.1}),
        entry("log", task="worker:1", metrics={"loss": 0.2}),
        entry("log", attempt=2, metrics={"loss": 0.3}),
    )
    assert values(read(directory).metrics()) == [
        ("worker:0", 1, "log", {"other": 1.0}),
        ("worker:0", 1, "report", {"loss": 0.12345}),
        ("worker:1", 1, "log", {"loss": 0.2}),
        ("worker:0", 2, "log", {"loss": 0.3}),
    ]


def test_a_record_without_metrics(directory):
    assert read(directory).metrics() == []
    with pytest.raises(NoRun, match="no fit"):
        read(directory).history()


@pytest.mark.parametrize(
    "damaged",
    [
        {},
        {"metrics": []},
        {"metrics": {"loss": 1}},
        {"metrics": {"loss": 1}, "wall": "x", "task": "worker:0", "attempt": 1},
        {"metrics": {"loss": 1}, "wall": 1, "task": "worker:0", "attempt": None},
        {"kind": "history"},
        {"kind": "history", "attempt": 1, "fit": "1", "start": 0, "name": "a", "values": []},
    ],
)
def test_a_damaged_line_costs_itself(damaged):
    good = {"wall": 1.0, "task": "worker:0", "attempt": 1, "metrics": {"loss": 1, "bad": "x"}}
    [found] = metrics([damaged, good])
    assert found["metrics"] == {"loss": 1.0}
    with pytest.raises(NoRun):
        history([damaged])


def test_a_history_is_put_together_of_the_last_fit(directory):
    def part(fit, name, start, *values, attempt=1):
        more = {"fit": fit, "name": name, "start": start, "values": values}
        return entry(kind="history", attempt=attempt, **more)

    write(
        directory,
        part(1, "loss", 0, 9.0),
        part(2, "loss", 2, 3.0, math.nan),
        part(2, "loss", 0, 1.0, 2.0),
        part(2, "val_loss", 0, math.inf),
    )
    found = read(directory).history()
    assert str(found) == "{'loss': [1.0, 2.0, 3.0, nan], 'val_loss': [inf]}"
    assert read(directory).metrics() == []
    write(directory, part(1, "loss", 0, 7.0, attempt=2))
    assert read(directory).history() == {"loss": [7.0]}


def test_rows_are_flat():
    found = list(rows([{"task": "worker:0", "step": 3, "metrics": {"loss": 1.0, "step": 2.0}}]))
    assert found == [{"task": "worker:0", "step": 3, "loss": 1.0, ".step": 2.0}]


def test_a_frame_needs_pandas(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(NotInstalled, match="pip install pandas"):
        data_frame([])


def test_a_frame(monkeypatch):
    class Pandas:
        DataFrame = staticmethod(lambda rows: ("a frame of", rows))

    monkeypatch.setitem(sys.modules, "pandas", Pandas)
    assert data_frame([{"step": 1, "metrics": {"loss": 2.0}}]) == (
        "a frame of",
        [{"step": 1, "loss": 2.0}],
    )
