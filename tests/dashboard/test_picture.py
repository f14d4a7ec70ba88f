"""The charts of a saved notebook."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import pytest

from mwmagic.dashboard.picture import MOST_POINTS, Picture
from mwmagic.dashboard.series import SPEED, Key, Point

TASKS = ["worker:0", "<b>worker:1"]


def points(metric, *values, task=0, attempt=1, first=1):
    key = Key(TASKS[task], attempt, metric)
    return [Point(n, key, float(first + n), y) for n, y in enumerate(values)]


def drawn(*curves):
    picture = Picture([point for curve in curves for point in curve], TASKS, "step")
    root = ET.fromstring(picture.svg)
    texts = [one.text for one in root.iter("{http://www.w3.org/2000/svg}text")]
    paths = [one.attrib for one in root.iter("{http://www.w3.org/2000/svg}path")]
    return texts, [one for one in paths if "opacity" in one]


def test_it_has_every_metric_numbers_titles_and_a_legend():
    texts, curves = drawn(
        points(SPEED, 40.0, 50.0),
        points("<i>&", 1.0, 2.0),
        points("val_loss", 8.0, 7.0),
        points("loss", 3.0, 1.0, 0.5),
        points("loss", 3.0, 1.0, 0.5, task=1),
        points(None, 2.0, first=2),
    )
    titles = [text for text in texts if text in ("loss", "val_loss", SPEED, "<i>&", "None")]
    assert titles == ["loss", "val_loss", SPEED, "<i>&"]
    assert texts.count("step") == 4
    assert {"1", "2", "3", "40", "epoch 2", *TASKS} <= set(texts)
    assert len(curves) == 5
    assert len({curve["stroke"] for curve in curves}) == 2


def test_a_gap_stays_a_gap_and_a_point_a_dot():
    _, [line, dots] = drawn(points("loss", None, 3.0, None, 1.0, 2.0, None, 4.0))
    assert re.fullmatch(r"M[\d. ]+L[\d. ]+", line["d"])
    assert re.fullmatch(r"(M[\d. ]+h0){2}", dots["d"])
    _, [dot] = drawn(points("loss", 3.0))
    for one in (dots, dot):
        assert (one["stroke-width"], one["stroke-linecap"]) == ("6", "round")


def test_a_title_fits_beside_its_chart():
    name = "val_" + "categorical_" * 3 + "accuracy"
    texts, _ = drawn(points(name, 1.0, 2.0))
    [title] = [text for text in texts if "…" in text]
    assert title.startswith("val_cat")
    assert title.endswith("accuracy")
    assert len(title) <= 22


def test_earlier_attempts_are_faint():
    _, curves = drawn(points("loss", 3.0, 2.0), points("loss", 3.0, 2.0, attempt=2))
    assert [curve["opacity"] for curve in curves] == ["0.4", "1"]


def test_nothing_is_drawn_of_values_that_are_no_numbers():
    assert Picture(points("loss", None), TASKS, "step").metrics == []


@pytest.mark.parametrize("values", [(0.0, 0.0), (-1e300, 1e300), (1e-300,), (5.0, 5.0)])
def test_odd_ranges_are_drawn(values):
    texts, curves = drawn(points("loss", *values))
    assert len(curves) == 1
    assert "nan" not in curves[0]["d"]
    assert "loss" in texts


def test_every_metric_is_drawn_and_the_picture_stays_small():
    tasks = [0, 1]
    many = [
        points(f"metric {n}", *map(float, range(1000)), task=task)
        for n in range(100)
        for task in tasks
    ]
    texts, curves = drawn(*many)
    assert {f"metric {n}" for n in range(100)} <= set(texts)
    assert len(curves) == len(many)
    assert len(many) <= sum(curve["d"].count("L") for curve in curves) <= MOST_POINTS
