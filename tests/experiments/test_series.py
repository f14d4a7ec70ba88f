"""The points of the charts, read from a record that grows."""

from __future__ import annotations

import json

import pytest

from mwmagic.experiments.series import SERIES_POINTS, SPEED, Key, Series


def entry(step, wall, **fields):
    told = {"task": "worker:0", "attempt": 1, "kind": "train", "epoch": 1, "epochs": 1}
    return (
        told | {"step": step, "steps": 10**6, "metrics": {"loss": 1 / step}, "wall": wall} | fields
    )


class Record:
    def __init__(self, path):
        self.path = path
        self.series = Series(path, ["worker:0", "worker:1"])

    def write(self, *entries):
        with self.path.open("a") as file:
            file.writelines(json.dumps(one) + "\n" for one in entries)
        return self

    def read(self, metric="loss", attempt=1):
        while self.series.read():
            pass
        key = Key("worker:0", attempt, metric)
        return [(point.x, point.y) for point in self.series.points if point.key == key]


def record(tmp_path):
    return Record(tmp_path / "metrics.jsonl")


def test_nothing_is_there_yet(tmp_path):
    assert record(tmp_path).read() == []


def test_points_come_once_and_in_order(tmp_path):
    one = record(tmp_path)
    for step in range(1, 5):
        one.write(entry(step, float(step)))
        assert one.read() == [(float(n), float(f"{1 / n:.5g}")) for n in range(1, step + 1)]


def test_what_is_too_dense_to_see_is_left_out_but_for_the_newest(tmp_path):
    one = record(tmp_path).write(*(entry(step, step / 1000) for step in range(1, 1001)))
    points = one.read()
    assert 8 <= len(points) <= 12
    assert points[0][0] == 1.0
    assert points[-1] == (1000.0, 0.001)


def test_a_cut_line_is_read_when_it_is_whole_and_garbage_never(tmp_path):
    one = record(tmp_path)
    whole = json.dumps(entry(1, 1.0)) + "\n"
    one.path.write_text("garbage\n[1]\n{}\nnull\n" + whole[:20])
    assert one.read() == []
    with one.path.open("a") as file:
        file.write(whole[20:])
    assert one.read() == [(1.0, 1.0)]


def test_names_may_be_anything_and_values_need_not_be_numbers(tmp_path):
    metrics = {"__proto__": 1.0, "<b>'\"": 2.0, "loss": float("nan"), "acc": float("inf")}
    one = record(tmp_path).write(entry(1, 1.0, metrics=metrics))
    assert one.read() == [(1.0, None)]
    assert one.read("__proto__") == [(1.0, 1.0)]
    assert one.read("<b>'\"") == [(1.0, 2.0)]
    assert one.read("acc") == [(1.0, None)]
    assert json.loads(json.dumps(one.series.since(0, 9)[0], allow_nan=False))


def test_an_attempt_is_a_series_of_its_own(tmp_path):
    one = record(tmp_path).write(entry(5, 1.0), entry(1, 2.0, attempt=2))
    assert one.read() == [(5.0, 0.2)]
    assert one.read(attempt=2) == [(1.0, 1.0)]


def test_the_axis_grows_over_epochs(tmp_path):
    one = record(tmp_path)
    one.write(*(entry(10, float(n), steps=10, epoch=n, epochs=3) for n in (1, 2, 3)))
    assert [x for x, _ in one.read()] == [10.0, 20.0, 30.0]
    assert [y for _, y in one.read(SPEED)] == [10.0, 10.0]


def test_epochs_are_marked_where_they_begin(tmp_path):
    one = record(tmp_path)
    one.write(*(entry(10, float(n), steps=10, epoch=n, epochs=3) for n in (1, 2, 3)))
    assert one.read(None) == [(10.0, 2.0), (20.0, 3.0)]


def test_a_metric_may_be_named_as_anything_that_a_chart_marks(tmp_path):
    one = record(tmp_path)
    metrics = {"an epoch begins": 0.5, "None": 0.25, "": 0.125}
    one.write(*(entry(10, float(n), steps=10, epoch=n, metrics=metrics) for n in (1, 2)))
    assert [one.read(name) for name in metrics] == [
        [(10.0, value), (20.0, value)] for value in metrics.values()
    ]
    assert one.read(None) == [(10.0, 2.0)]


def test_epochs_of_a_printed_log_are_marked(tmp_path):
    told = {"kind": "print", "source": "log", "steps": None}
    one = record(tmp_path).write(
        *(
            entry(step, float(step + 9 * epoch), epoch=epoch, **told)
            for epoch in (1, 2)
            for step in (3, 6)
        )
    )
    assert one.read(None) == [(6.0, 2.0)]


def test_an_axis_of_epochs_has_no_marks(tmp_path):
    one = record(tmp_path).write(*(entry(1, float(n), epoch=n) | {"step": None} for n in (1, 2, 3)))
    assert [x for x, _ in one.read()] == [1.0, 2.0, 3.0]
    assert one.read(None) == []


def test_pages_get_points_and_where_to_go_on(tmp_path):
    one = record(tmp_path).write(
        *(entry(step, float(step), metrics={"loss": 1}) for step in (1, 2))
    )
    one.read()
    points, end = one.series.since(0, 99)
    loss, speed = (Key("worker:0", 1, metric) for metric in ("loss", SPEED))
    assert [point[:4] for point in points] == [
        (0, loss, 1.0, 1.0),
        (1, loss, 2.0, 1.0),
        (2, speed, 2.0, 1.0),
    ]
    assert end == one.series.next == 3
    assert one.series.since(0, 2) == (points[:2], 2)
    assert one.series.since(2, 2) == (points[2:], 3)
    assert one.series.since(3, 2) == ([], 3)


@pytest.mark.slow
def test_only_so_many_points_are_kept(tmp_path):
    one = record(tmp_path)
    steps = range(1, SERIES_POINTS)
    one.write(*(entry(step, float(step), steps=None, kind="print") for step in steps))
    points = one.read()
    assert len(one.series.points) <= SERIES_POINTS
    assert len(points) > SERIES_POINTS / 5
    assert points == sorted(points)


def report(step, wall, **fields):
    return entry(step, wall, **({"source": "report", "steps": 10} | fields))


def test_reports_win_over_what_the_log_says(tmp_path):
    one = record(tmp_path).write(entry(1, 1.0, steps=10, metrics={"loss": 9.0, "other": 1.0}))
    assert one.read() == [(1.0, 9.0)]
    one.write(
        report(1, 2.0, metrics={"loss": 0.5}),
        entry(2, 3.0, steps=10, metrics={"loss": 9.0, "other": 2.0}),
        report(2, 4.0, metrics={"loss": 0.25}),
    )
    assert one.read() == [(1.0, 0.5), (2.0, 0.25)]
    assert one.read("other") == [(1.0, 1.0), (2.0, 2.0)]


def test_what_keras_reports_of_a_step_is_a_point_whenever_it_comes(tmp_path):
    """Workers that train together report the same steps, at moments of their own."""
    one = record(tmp_path).write(
        *(
            report(step, 1.0 + step * pause, metrics={"loss": step / 8}) | {"task": task}
            for task, pause in (("worker:0", 0.0625), ("worker:1", 0.03125))
            for step in (1, 2, 4, 8, 10)
        )
    )
    one.read()
    drawn = [
        [(p.x, p.y) for p in one.series.points if p.key[::2] == (task, "loss")]
        for task in ("worker:0", "worker:1")
    ]
    assert drawn == [[(step, step / 8) for step in (1, 2, 4, 8, 10)]] * 2


def test_an_epochs_mean_is_no_step_but_validation_is_shown(tmp_path):
    end = {"final": True, "epochs": 2}
    one = record(tmp_path).write(
        report(5, 1.0, metrics={"loss": 0.5}),
        report(10, 2.0, metrics={"loss": 0.75, "rate": 0.1}, **end),
        report(10, 3.0, kind="validation", metrics={"val_loss": 2.0}, **end),
        report(10, 4.0, kind="evaluate", metrics={"loss": 3.0}, final=True),
        report(5, 5.0, epoch=2, metrics={"loss": 0.25}),
    )
    assert one.read() == [(5.0, 0.5), (15.0, 0.25)]
    assert one.read("rate") == [(10.0, 0.1)]
    assert one.read("val_loss") == [(10.0, 2.0)]


def test_speed_as_reported_leaves_out_the_time_of_validation(tmp_path):
    one = record(tmp_path).write(
        report(1, 1.0, seconds_per_step=0.5),
        report(1, 90.0, kind="validation", metrics={"val_loss": 1.0}, final=True),
        report(2, 100.0, seconds_per_step=0.25),
    )
    assert one.read(SPEED) == [(1.0, 2.0), (2.0, 4.0)]


def test_the_axis_grows_over_fits(tmp_path):
    one = record(tmp_path).write(
        *(report(10, float(n), epoch=epoch) for n, epoch in enumerate((1, 2, 1, 2)))
    )
    assert [x for x, _ in one.read()] == [10.0, 20.0, 30.0, 40.0]


def used(seconds, task="worker:0", **usage):
    where = {"task": task, "attempt": 1, "wall": 1e9 + seconds, "kind": "usage"}
    return {**where, "seconds": seconds, "usage": usage}


def test_what_tasks_use_is_there_by_seconds_if_it_is_wanted(tmp_path):
    one = record(tmp_path).write(
        entry(1, 1e9),
        used(2.5, cpus=1.25, memory=3 * 2**20, read=0.0, gpu=0.5),
        used(5.0, cpus=0.0, memory=4 * 2**20, read=0.0, gpu=0.25),
        used(5.0, task="worker:7", cpus=1.0),
        {**used(7.5), "usage": {"cpus": "many"}},
        {**used(7.5), "seconds": None},
    )
    assert one.read("CPUs in use") == []
    assert one.read() == [(1.0, 1.0)]
    one.series = Series(one.path, ["worker:0"], usage=True)
    assert one.read("CPUs in use") == [(2.5, 1.25), (5.0, 0.0)]
    assert one.read("memory (MB)") == [(2.5, 3.0), (5.0, 4.0)]
    assert one.read("GPU (%)") == [(2.5, 50.0), (5.0, 25.0)]
    assert one.read("disk reads (MB/s)") == [], "never above 0"
    assert one.read() == [(1.0, 1.0)]
