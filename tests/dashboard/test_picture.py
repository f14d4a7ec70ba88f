"""The charts of a saved notebook."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import pytest

from mwmagic.dashboard.static import (
    INK,
    LEFT_PIXELS,
    MOST_POINTS,
    TOP_PIXELS,
    WIDTH_PIXELS,
    Picture,
    page,
)
from mwmagic.experiments.series import SPEED, Key, Point
from mwmagic.model.status import RunStatus, TaskStatus

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


def test_what_tasks_use_comes_last_by_seconds_and_only_beside_metrics():
    status = RunStatus(tasks=dict.fromkeys(TASKS, TaskStatus()))
    used = [*points("CPUs in use", 1.0, 1.5), *points("disk reads (MB/s)", 1.0)]
    assert "<img" not in page(status, used)
    assert "loss: 3 at the start, 1 at the end; CPUs in use: 1 " in page(
        status, [*used, *points("loss", 3.0, 1.0)]
    )
    texts, _ = drawn(used, points("loss", 3.0, 1.0))
    assert (texts.count("step"), texts.count("seconds")) == (1, 2)


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


def places(svg, prefix):
    """Return where texts with a prefix begin, in pixels, and which they are."""
    texts = ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")
    found = [(float(one.get("x")), float(one.get("y")), one.text) for one in texts]
    return [place for place in found if place[2].startswith(prefix)]


@pytest.mark.parametrize("epochs", [2, 8, 40])
def test_epochs_have_names_above_the_curves_where_there_is_room(epochs):
    curve = points("loss", *map(float, range(10 * epochs)))
    marks = [Point(n, Key(TASKS[0], 1, None), 10.0 * n + 1, n + 1.0) for n in range(1, epochs)]
    found = places(Picture([*curve, *marks], TASKS, "step").svg, "epoch ")
    assert found
    assert all(y < TOP_PIXELS for _, y, _ in found), "no curve is there"
    ends = [x + 6 * len(text) for x, _, text in found]
    starts = [x for x, _, _ in found]
    assert all(end < start for end, start in zip(ends, starts[1:], strict=False))
    assert ends[-1] <= WIDTH_PIXELS


def test_the_name_of_the_last_epoch_is_whole():
    curve = points("loss", *map(float, range(100)))
    mark = Point(0, Key(TASKS[0], 1, None), 100.0, 12.0)
    [(x, _, text)] = places(Picture([*curve, mark], TASKS, "step").svg, "epoch ")
    assert x + 6 * len(text) <= WIDTH_PIXELS


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ((4e10, 4.2e10), ["4e10", "4.05e10", "4.1e10", "4.15e10", "4.2e10"]),
        ((0.0, 2e12), ["0", "5e11", "1e12", "1.5e12", "2e12"]),
        ((1e-9, 2e-9), ["1e-9", "1.5e-9", "2e-9"]),
        ((0.0, 90_000.0), ["0", "50000"]),
        ((123_456_780.0, 123_456_790.0), None),
    ],
)
def test_the_numbers_of_an_axis_fit_beside_it(values, labels):
    texts = places(Picture(points("loss", *values), TASKS, "step").svg, "")
    found = [text for x, _, text in texts if x == LEFT_PIXELS - 5]
    assert all(len(text) <= 9 for text in found)
    assert labels is None or [float(text) for text in found] == [float(text) for text in labels]


def test_it_can_be_read_on_a_page_of_either_theme():
    svg = Picture(points("loss", 3.0, 2.0), TASKS, "step").svg
    assert "<rect" not in svg, "it has no ground of its own"
    for ground in (0xFF, 0x21):
        assert contrast(int(INK[1:3], 16), ground) > 3.9


def contrast(ink, ground):
    """Return the contrast of two greys, as the Web Content Accessibility Guidelines define it."""
    light, dark = sorted(((grey / 255 + 0.055) / 1.055) ** 2.4 for grey in (ink, ground))[::-1]
    return (light + 0.05) / (dark + 0.05)


def test_earlier_attempts_are_faint():
    _, curves = drawn(points("loss", 3.0, 2.0), points("loss", 3.0, 2.0, attempt=2))
    assert [curve["opacity"] for curve in curves] == ["0.4", "1"]


def test_values_that_are_not_numbers_are_not_drawn():
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
