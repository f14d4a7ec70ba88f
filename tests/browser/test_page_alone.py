"""The page's side of the dashboard by itself: what it draws of the packets that it is sent."""

from __future__ import annotations

import base64
import csv
import os
import time
from xml.etree import ElementTree as ET

import pytest
from lab import CHROMIUM, QUIET, saved, watched
from plain import DARK, HOST, LIGHT
from processes import PATIENCE

from mwmagic.dashboard.board import Widget
from mwmagic.dashboard.rows import View, header, row
from mwmagic.dashboard.sweep import NotebookScaling
from mwmagic.experiments.scaling import ScalingPlan, Size, Study
from mwmagic.model.findings import SlowCause, Slowdown
from mwmagic.model.status import Reached, RunState, RunStatus, TaskState, TaskStatus

pytestmark = [pytest.mark.slow, pytest.mark.browser]

METRICS = ["loss", "accuracy", "val_loss", "val_accuracy", *(f"metric_{n}" for n in range(16))]


@pytest.fixture(scope="module")
def chromium():
    if CHROMIUM is None:
        pytest.skip("there is no chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET.split())
        yield browser
        browser.close()


class Page:
    """A page of a run, and its side of the conversation that a kernel has with it."""

    def __init__(self, browser, workers, colours=LIGHT, width=1280):
        self.page = watched(browser.new_context(viewport={"width": width, "height": 1000}))
        self.page.expose_function("said", lambda content: None)
        self.names = [f"worker:{index}" for index in range(workers)]
        self.at = [0, 0, 0]
        self.run = 1
        self.slow = None
        state = {"_esm": Widget._esm, "_css": Widget._css, "label": "mw-label"}
        state["state"] = self.state(RunState.RUNNING)
        names = ("--vscode-editor-background", "--vscode-editor-foreground")
        colours = dict(zip(names, colours, strict=True))
        self.page.evaluate(HOST, {"state": state, "colours": colours})

    def state(self, state, **values):
        task = TaskStatus(state=TaskState.RUNNING, phase="training", progress=self.reached(values))
        tasks = dict.fromkeys(self.names, task)
        known = {"number": self.run, "state": state, "started": time.time(), "slow": self.slow}
        status = RunStatus(tasks=tasks, **known)
        shown = dict.fromkeys(map(str, range(len(tasks))), row(task) | {"first": 0, "live": ""})
        return {"header": header(View(status)), "rows": shown, "hosts": {}}

    def reached(self, metrics):
        return Reached("train", 1, 3, 5, 10, metrics) if metrics else None

    def send(self, state=RunState.RUNNING, *, points=(), texts=(), stacks=None, **metrics):
        """Send a packet: points by metric, step and value, of all tasks; texts by task."""
        before = self.at
        given = [[i, 1, *point] for point in points for i in range(len(self.names))]
        told = [[before[0] + n, *text] for n, text in enumerate(texts)]
        self.at = [before[0] + len(told), before[1] + len(given), before[2] + 1]
        packet = {"kind": "packet", "to": self.at, "from": before, "now": time.time()}
        packet |= {"run": self.run, "question": 0, "texts": told, "points": given}
        packet |= self.state(state, **metrics) | ({} if stacks is None else {"stacks": stacks})
        self.page.evaluate("frame => window.heard['msg:custom'](frame, [])", packet)

    def next_run(self):
        self.run, self.at = self.run + 1, [0, 0, 0]

    def points(self, points):
        """Send points of lines, and wait until they are drawn."""
        self.page.evaluate(
            "frame => window.heard['msg:custom'](frame, [])",
            {
                "kind": "packet",
                "run": 1,
                "now": time.time(),
                "question": 0,
                "texts": [],
                "points": points,
                "from": self.at,
                "to": [self.at[0], self.at[1] + len(points), self.at[2]],
            },
        )
        self.drawn()

    def charts(self):
        return self.page.locator("figure")

    def label(self, chart):
        return self.charts().nth(chart).locator(".mw-plot").get_attribute("aria-label")

    def until(self, condition):
        end = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < end, f"not in {PATIENCE} s"
            self.page.wait_for_timeout(20)

    def box(self, element):
        """Return where an element is, once it is drawn."""
        found = []
        self.until(lambda: found.append(element.bounding_box()) or found[-1])
        return found[-1]

    def drawn(self):
        """Wait until the points that were sent are drawn."""
        self.until(lambda: self.charts().first.locator("svg path").count() > 1)

    def top(self, selector):
        return self.page.locator(selector).first.bounding_box()["y"]

    def shot(self, name):
        if folder := os.environ.get("MWMAGIC_SCREENSHOTS"):
            self.page.locator(".mw").screenshot(path=f"{folder}/{name}.png")


@pytest.fixture
def opened(chromium):
    """Return what opens pages; nothing may go wrong in them."""
    pages = []

    def open_page(workers, **how):
        pages.append(Page(chromium, workers, **how))
        return pages[-1]

    yield open_page
    for one in pages:
        assert not one.page.problems
        one.page.context.close()


CURVES = [(name, step, 1 / step) for step in range(1, 9) for name in ("loss", "accuracy")]
VALIDATED = [*CURVES, ("val_loss", 4, 0.5), ("val_loss", 8, 0.25)]
SPEEDS = [("steps/s", step, 30.0) for step in (2, 4, 8)]


def test_training_and_validation_share_the_second_chart(opened):
    page = opened(2)
    page.send(points=[*CURVES, *SPEEDS])
    page.drawn()
    assert page.label(1).startswith("steps/s: ")
    page.send(points=[("val_loss", 4, 0.5), ("val_loss", 8, 0.25)])
    page.until(lambda: page.label(1).startswith("loss and val_loss: "))
    assert page.label(0).startswith("loss: ")
    assert page.label(1).endswith("[0-1] · step 8: loss 0.125, [0-1] · step 8: val_loss 0.25")
    chart = page.charts().nth(1)
    assert chart.locator("path.mw-validation").count() == 2
    page.shot("validation")
    chart.locator("select").select_option("steps/s")
    page.send(points=[("val_loss", 9, 0.125)])
    page.page.wait_for_timeout(600)
    assert page.label(1).startswith("steps/s: "), "what was chosen stays"


def test_another_run_begins_with_empty_charts_where_the_old_ones_were(opened):
    page = opened(2)
    page.send(points=VALIDATED)
    page.drawn()
    before = page.top(".mw-lines")
    page.next_run()
    page.send()
    assert page.charts().first.locator("svg *").count() == 0
    assert page.top(".mw-lines") == before
    page.send(points=CURVES)
    page.drawn()
    assert page.top(".mw-lines") == before
    page.next_run()
    page.send()
    page.send(RunState.FINISHED)
    page.page.wait_for_timeout(600)


def test_what_tasks_use_is_offered_beside_their_metrics_by_time(opened):
    page = opened(2)
    used = [("CPUs in use", seconds, seconds / 10) for seconds in (2.5, 5.0, 7.5)]
    page.send(points=used)
    page.page.wait_for_timeout(600)
    assert page.charts().first.is_hidden(), "there is no metric yet"
    page.send(points=[*VALIDATED, *SPEEDS])
    page.drawn()
    assert page.label(0).startswith("loss: ")
    chart = page.charts().first
    options = chart.locator("option").all_text_contents()
    assert options[-2:] == ["loss and val_loss", "CPUs in use"]
    chart.locator("select").select_option("CPUs in use")
    page.until(lambda: page.label(0) == "CPUs in use: [0-1] · seconds 7.5: 0.75")
    assert "seconds" in chart.locator("svg text").all_text_contents()
    page.shot("used")
    chart.locator("select").select_option("loss")
    page.until(lambda: page.label(0) == "loss: [0-1] · step 8: 0.125")


PIXEL = """
async (data) => {
  const image = new Image(), canvas = document.createElement("canvas");
  image.src = `data:image/png;base64,${data}`;
  await image.decode();
  [canvas.width, canvas.height] = [image.width, image.height];
  const drawn = canvas.getContext("2d");
  drawn.drawImage(image, 0, 0);
  const all = drawn.getImageData(0, 0, image.width, image.height).data;
  const colours = new Set(new Uint32Array(all.buffer));
  return [image.width, colours.size, `rgb(${[...all].slice(0, 3).join(", ")})`];
}
"""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_chart_is_saved_as_a_picture_and_its_points_as_csv(opened, theme):
    colours = DARK if theme == "dark" else LIGHT
    page = opened(2, colours=colours)
    odd = '<b>"loss",\x01'
    points = [(odd, step, 1 / step) for step in (1, 2, 4)]
    page.send(points=[*points, ("accuracy", 1, None)])
    page.drawn()
    chart = page.charts().first
    svg = saved(page.page, chart, "SVG")
    assert svg.suggested_filename == "_b_loss_.svg"
    drawn = ET.parse(svg.path()).getroot()
    texts = {one.text for one in drawn.iter("{http://www.w3.org/2000/svg}text")}
    assert {"step", "worker:0", "worker:1", odd.replace("\x01", "\ufffd")} <= texts
    assert drawn[0].get("fill") == colours[0]
    assert all(one.get("fill") == drawn[-1].get("fill") != colours[0] for one in drawn if one.text)
    png = saved(page.page, chart, "PNG").path().read_bytes()
    width, count, corner = page.page.evaluate(PIXEL, base64.b64encode(png).decode())
    assert (width, corner) == (2 * int(drawn.get("width")), colours[0])
    assert count > 10, "nothing is drawn"
    with saved(page.page, chart, "CSV").path().open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(one["x"], one["value"]) for one in rows if one["metric"] == odd] == [
        ("1", "1"), ("2", "0.5"), ("4", "0.25")
    ] * 2  # fmt: skip
    assert [one["value"] for one in rows if one["metric"] == "accuracy"] == ["", ""]
    assert {(one["line"], one["axis"]) for one in rows} == {
        ("worker:0", "step"),
        ("worker:1", "step"),
    }


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_charts_come_before_many_cards_which_keep_their_size(opened, theme):
    page = opened(16, colours=DARK if theme == "dark" else LIGHT)
    page.send(points=VALIDATED, **dict.fromkeys(METRICS, 0.5))
    page.drawn()
    card = page.page.locator(".mw-card").first
    assert page.top("figure") < page.top(".mw-card") < page.top(".mw-lines")
    boxes = [card.bounding_box(), page.page.locator(".mw-tasks").bounding_box()]
    page.send(**dict.fromkeys(METRICS, 1.234e-5))
    assert [card.bounding_box(), page.page.locator(".mw-tasks").bounding_box()] == boxes
    assert boxes[1]["height"] < 400
    assert "metric_15" in card.locator(".mw-name").get_attribute("title")
    chart = page.charts().first
    plot = chart.locator(".mw-plot").bounding_box()
    page.page.mouse.move(plot["x"] + 200, plot["y"] + 50)
    tip = chart.locator(".mw-tip")
    assert tip.text_content().startswith("[0-15] · step ")
    inside = tip.bounding_box()
    assert plot["y"] <= inside["y"]
    assert inside["y"] + inside["height"] <= plot["y"] + plot["height"]
    page.shot(f"sixteen-{theme}")


def test_what_stands_around_a_chart_is_whole_and_together(opened):
    page = opened(1, width=1000)
    page.send()
    page.points([[0, 1, "loss", step, 1 / step] for step in range(1, 1004)])
    chart = page.charts().first
    plot = page.box(chart.locator(".mw-plot"))
    label = page.box(chart.get_by_text("1000", exact=True))
    assert label["x"] + label["width"] <= plot["x"] + plot["width"]
    files = [chart.get_by_role("button", name=f"{kind} file of") for kind in ("SVG", "CSV")]
    assert len({page.box(one)["y"] for one in files}) == 1


def test_a_tooltip_of_many_values_stays_within_its_chart(opened):
    page = opened(16)
    page.send()
    page.points([[i, 1, "loss", step, i + step] for i in range(16) for step in (1, 2)])
    plot = page.charts().first.locator(".mw-plot").bounding_box()
    page.page.mouse.move(plot["x"] + 200, plot["y"] + 50)
    inside = page.charts().first.locator(".mw-tip").bounding_box()
    assert inside["y"] + inside["height"] <= plot["y"] + plot["height"]
    assert "… and 8 more" in page.charts().first.locator(".mw-tip").text_content()


SLOW = Slowdown(
    SlowCause.INPUT_WAITS, "worker:1", share=0.62, step=0.101, at="<b>train.py</b>:14 in decode"
)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_what_makes_training_slow_is_said_above_the_tasks(opened, theme):
    page = opened(2, colours=DARK if theme == "dark" else LIGHT, width=700)
    page.send(points=VALIDATED, loss=0.5)
    notice = page.page.locator(".mw-notice")
    assert not notice.text_content()
    page.slow = SLOW
    page.send(loss=0.5)
    page.drawn()
    assert notice.text_content().startswith(
        "worker:1 holds up every step: it waits for its input (62% of a step is lost), at "
        "<b>train.py</b>:14 in decode. Without that a step would take 38.4 ms instead of 101 ms"
    )
    assert page.top(".mw-notice") < page.top(".mw-tasks")
    assert page.page.evaluate("document.body.scrollWidth") <= 700
    page.shot(f"slow-{theme}")
    page.slow = None
    page.send(loss=0.5)
    assert not notice.text_content()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_chart_of_a_scaling_study_can_be_read(opened, theme):
    page = opened(2, width=700)
    measured = ((1, 1.0, 0.0), (2, 1.3, 0.1), (4, 1.2, 0.1))
    sizes = [
        Size(workers, alone=False, throughput=speedup, speedup=speedup, error=error)
        for workers, speedup, error in measured
    ]
    study = NotebookScaling(Study(1, ScalingPlan(cpus=2), sizes, mode="strong"))
    back, ink = DARK if theme == "dark" else LIGHT
    style = f"background: {back}; color: {ink}"
    page.page.set_content(
        f'<!doctype html><div class="mw" style="{style}">{study._repr_html_()}</div>'
    )
    picture = page.page.locator("img")
    assert picture.get_attribute("alt").startswith(
        "2 workers train 1.3x as fast as 1, 4 train 1.2x"
    )
    page.until(lambda: picture.evaluate("one => one.complete && one.naturalWidth") == 410)
    assert page.page.locator("tr").count() == 4
    assert page.page.evaluate("document.body.scrollWidth") <= 700
    page.shot(f"scaling-{theme}")


@pytest.mark.parametrize(("workers", "shown"), [(2, ["worker:0", "worker:1"]), (16, ["[0-15]"])])
def test_what_many_tasks_print_alike_is_shown_once(opened, workers, shown):
    page = opened(workers)
    page.send(texts=[[index, 0, "Epoch 1/3\nstarted"] for index in range(workers)])
    lines = page.page.locator(".mw-blocks .mw-line")
    assert lines.evaluate_all("nodes => nodes.map((n) => n.dataset.task)") == shown
    assert f"{2 * len(shown)} lines shown · all in" in page.page.locator(".mw").text_content()
    page.page.get_by_role("button", name="worker:1", exact=True).click()
    assert lines.evaluate_all("nodes => nodes.map((n) => n.dataset.task)") == ["worker:1"]


def test_stacks_keep_a_distance_from_the_border(opened):
    """Jupyter takes the padding of all `pre` away."""
    page = opened(2)
    page.page.add_style_tag(content=".mw.mw pre, body section pre { padding: 0 }")
    page.send(stacks="Stacks at 12:00:00\nworker:0 is at main.py:1 in f")
    text = page.page.locator(".mw section pre")
    padding = text.evaluate("node => getComputedStyle(node).padding.split(' ').map(parseFloat)")
    assert min(padding) >= 6
    page.shot("stacks")


def test_a_narrow_page_shows_both_charts(opened):
    page = opened(16, width=700)
    page.send(points=VALIDATED, **dict.fromkeys(METRICS, 0.5))
    page.drawn()
    page.shot("sixteen-narrow")
    assert page.page.evaluate("document.body.scrollWidth") <= 700
    titles = page.charts().get_by_text("step", exact=True)

    def fit():
        """Whether both charts hold their titles; each is drawn again when the other appears."""
        inside, boxes = (
            [one.bounding_box() for one in all_of.all()] for all_of in (titles, page.charts())
        )
        return len(inside) == len(boxes) == 2 and all(
            title and box and title["x"] + title["width"] < box["x"] + box["width"]
            for title, box in zip(inside, boxes, strict=True)
        )

    page.until(fit)
