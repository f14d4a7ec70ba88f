"""What a page is sent of a run."""

from __future__ import annotations

import base64
import json
import os
import re
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from statuses import RELAXED

from mwmagic.dashboard import feed as feed_module
from mwmagic.dashboard.feed import FLOOD_BYTES, Cursor, Feed
from mwmagic.dashboard.rows import View
from mwmagic.dashboard.static import page, text
from mwmagic.experiments.series import SPEED
from mwmagic.logs.noise import Noise
from mwmagic.model.status import RunStatus

ODD = "lone \ud800 \udcff"


@pytest.fixture
def printed(view):
    """Append to the log of the only task."""
    log = Path(view.run.tasks["worker:0"].log)

    def append(lines):
        with log.open("ab") as file:
            file.write(b"a line of a long log\n" * lines)

    return append


@pytest.fixture
def view(tmp_path):
    log = tmp_path / "attempt-1/worker-0.log"
    log.parent.mkdir()
    log.write_bytes(b"good\nbad\n\xed\xa0\x80\n")
    entry = {"wall": 1.0, "task": "worker:0", "attempt": 1, "kind": "print", "source": "log"}
    metrics = {"loss": 0.5, ODD: 1.0}
    record = json.dumps({**entry, "step": 1, "metrics": metrics})
    (tmp_path / "metrics.jsonl").write_text(record + "\n")
    task = {"state": "ended", "log": str(log), "error": ODD, "progress": {"metrics": metrics}}
    cause = {"task": "worker:0", "exception": ODD, "log": [ODD]}
    run = {"number": 1, "directory": str(tmp_path), "state": "failed", "attempt": 1}
    return View(RunStatus.from_json({**run, "tasks": {"worker:0": task}, "cause": cause}), "", ODD)


def packet(feed):
    message, _ = feed.packet(Cursor(), 10_000)
    return message


def test_whatever_a_worker_says_can_be_sent_and_saved(view):
    feed = Feed(view)
    feed.say(ODD)
    message = packet(feed)
    assert message["points"]
    data = json.dumps(message, ensure_ascii=False, allow_nan=False).encode()
    assert "lone \N{REPLACEMENT CHARACTER}" in data.decode()
    assert page(view.run, feed.series.points).encode()
    assert text(view.run).encode()


def test_a_parser_that_raises_costs_its_line_and_is_noted_once(view, monkeypatch):
    def hides(_self, line):
        if "bad" in line:
            raise RuntimeError(ODD)
        return False

    monkeypatch.setattr(Noise, "hides", hides)
    lines = [line for one in packet(Feed(view))["texts"] for line in one.text.split("\n")]
    assert {"good", "bad"} <= {*lines}
    assert len([line for line in lines if "RuntimeError" in line]) == 1


def test_a_saved_page_draws_every_metric(view):
    names = ["loss", *(f"metric {number}" for number in range(10))]
    record = Path(view.run.directory) / "metrics.jsonl"
    entry = json.loads(record.read_text()) | {"metrics": dict.fromkeys(names, 0.5)}
    record.write_text(json.dumps(entry) + "\n")
    feed = Feed(view)
    board = {metric for _, _, metric, _, _ in packet(feed)["points"]}
    assert board == set(names)
    assert set(re.findall(r">([^<]+)</text>", picture(page(view.run, feed.series.points)))) >= board


FIELDS = {
    "source": st.sampled_from(["report", "log"]),
    "kind": st.sampled_from(["train", "validation", "bar", "evaluate", "print", "report"]),
    "task": st.just("worker:0"),
    "attempt": st.integers(1, 3),
    "wall": st.floats(0, 100),
    "final": st.booleans(),
    "seconds_per_step": st.floats(),
    "metrics": st.dictionaries(st.sampled_from(["loss", SPEED, "", ODD]), st.floats(), min_size=1),
    **dict.fromkeys(("step", "steps", "epoch", "epochs"), st.integers(0, 20)),
}


def test_a_flood_is_what_grows_faster_than_it_is_read(view, printed):
    feed = Feed(view)
    printed(1000)
    assert not feed.flooded(), "a page takes that at once"
    printed(FLOOD_BYTES // 20)
    assert feed.flooded()
    feed.collect(1000)
    assert not feed.flooded(), "nothing more was printed: what is left is shown as fast as can be"
    printed(1000)
    assert feed.flooded()
    while feed.collect(FLOOD_BYTES):
        pass
    assert not feed.flooded()


def damaged(**fields):
    told = {"source": "report", "kind": "train", "task": "worker:0", "attempt": 1, "wall": 1.0}
    return {**told, "step": 1, "metrics": {"loss": 0.5}, **fields}


NEEDED = ("task", "attempt", "wall", "metrics")
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
ANYTHING = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=2), max_leaves=3) | (
    st.sampled_from([10**400, -(10**17), {}, "NaN", 5e-324])
)
ODDLY = {name: st.one_of(*[good] * 4, ANYTHING) for name, good in FIELDS.items()}
ENTRY = st.fixed_dictionaries({name: ODDLY.pop(name) for name in NEEDED}, optional=ODDLY)


@pytest.mark.slow
@RELAXED
@given(st.lists(ENTRY, max_size=20))
@example([damaged(seconds_per_step="fast")])
@example([damaged(step=10**400)])
@example([damaged(task="worker:7")])
@example([damaged(metrics={"loss": 5e-324, SPEED: -1.0})])
@example([damaged(metrics={"loss": value}) for value in (-1.7e308, 1.7e308)])
def test_damaged_metrics_cost_their_line_only(entries):
    with TemporaryDirectory() as folder:
        run = {"number": 1, "directory": folder, "state": "running", "attempt": 1}
        status = RunStatus.from_json({**run, "tasks": {"worker:0": {"state": "running"}}})
        whole = {"wall": 1.0, "task": "worker:0", "attempt": 9, "metrics": {"whole": 0.5}}
        lines = [json.dumps(one) for one in [*entries, whole]]
        (Path(folder) / "metrics.jsonl").write_text("\n".join(lines) + "\n")
        feed = Feed(View(status))
        message = packet(feed)
        json.dumps(message, allow_nan=False)
        assert [0, 9, "whole"] in [point[:3] for point in message["points"]]
        assert not message["texts"], "no fault is told of"
        assert ">whole</text>" in picture(page(status, feed.series.points))


def picture(html):
    """Return the SVG of a saved page."""
    [source] = re.findall(r"data:image/svg\+xml;base64,([^\"]+)", html)
    return base64.b64decode(source).decode()


def test_a_page_shows_no_frames_of_mwmagics_own(view):
    frame_of = (
        '  File "/opt/site-packages/mwmagic/repairs/fit.py", line 1, in fit\n    original()\n'
    )
    Path(view.run.tasks["worker:0"].log).write_text(f"one\n{frame_of}two\n")
    lines = [line for one in packet(Feed(view))["texts"] for line in one.text.split("\n")]
    assert [line for line in lines if line][:2] == ["one", "two"]


def png(folder, name, text, end=b"IEND\xaeB\x60\x82"):
    (folder / name).write_bytes(b"\x89PNG\r\n\x1a\n" + text.encode() + end)
    os.utime(folder / name, ns=(0, png.time))
    png.time += 10**9


png.time = 0


def exhibited(feed):
    figures = feed.state()["figures"]
    return {caption: figures[key] for key, caption in figures.get("", [])}


def test_the_last_figures_are_shown_once_each(view, tmp_path):
    folder = tmp_path / "attempt-1"
    assert exhibited(Feed(view)) == {}
    for number in range(1, 8):
        png(folder, f"worker-0.figure-{number}.png", str(number))
    png(folder, "worker-1.figure-1.png", "7")
    png(folder, "worker-0.figure-8.png", "half", end=b"")
    (folder / "worker-0.figure-9.png").write_bytes(b"<svg onload='alert(1)'>")
    os.mkfifo(folder / "worker-0.figure-10.png")
    feed = Feed(view)
    shown = exhibited(feed)
    names = [
        "worker:0 · figure 4",
        "worker:0 · figure 5",
        "worker:0 · figure 6",
        "[0-1] · figure 1",
    ]
    assert [*shown] == names
    assert all(source.startswith("data:image/png;base64,") for source in shown.values())
    assert page(view.run, figures=feed.figures).count("<img alt=") == 4
    assert feed.saved["figures"] == {}, "the notebook keeps them as HTML"


def test_a_figure_of_several_tasks_stands_where_it_was_first_shown(view, tmp_path):
    folder = tmp_path / "attempt-1"
    png(folder, "worker-1.figure-1.png", "same")
    png(folder, "worker-1.figure-2.png", "one")
    png(folder, "worker-0.figure-1.png", "same")
    png(folder, "worker-0.figure-2.png", "other")
    names = ["[0-1] · figure 1", "worker:1 · figure 2", "worker:0 · figure 2"]
    assert [*exhibited(Feed(view))] == names


def test_only_a_new_figure_is_sent(view, tmp_path):
    png(tmp_path / "attempt-1", "worker-0.figure-1.png", "first")
    feed = Feed(view)
    at = feed.packet(Cursor(), 10_000)[1]
    png(tmp_path / "attempt-1", "worker-0.figure-2.png", "second")
    feed.update(replace(view, refusal="none"))
    [order, *sent] = sorted(feed.packet(at, 10_000)[0]["figures"])
    assert (order, len(sent)) == ("", 1)


def test_figures_are_read_only_when_there_are_others(view, tmp_path, monkeypatch):
    png(tmp_path / "attempt-1", "worker-0.figure-1.png", "first")
    feed = Feed(view)
    read = []
    monkeypatch.setattr(feed_module, "last_figures", lambda paths: read.append(paths) or [])
    feed.update(replace(view, refusal="once"))
    assert not read
    png(tmp_path / "attempt-1", "worker-0.figure-1.png", "another")
    feed.update(replace(view, refusal="twice"))
    assert len(read) == 1


def test_a_large_figure_is_only_named(view, tmp_path):
    png(tmp_path / "attempt-1", "worker-0.figure-1.png", "0" * 250_000)
    feed = Feed(view)
    [(caption, source)] = exhibited(feed).items()
    assert "too large to show here" in caption
    assert source == ""
    assert "<img" not in page(view.run, figures=feed.figures)
