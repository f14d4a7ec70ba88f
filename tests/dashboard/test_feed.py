"""What a page is sent of a run."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path

import pytest

from mwmagic.dashboard.feed import Feed
from mwmagic.dashboard.pages import Cursor
from mwmagic.dashboard.rows import View
from mwmagic.dashboard.static import page, text
from mwmagic.logs.noise import Noise
from mwmagic.model.status import RunStatus

ODD = "lone \ud800 \udcff"


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


def frame(feed):
    message, _ = feed.frame(Cursor(), 10_000)
    return message


def test_whatever_a_worker_says_can_be_sent_and_saved(view):
    feed = Feed(view)
    feed.say(ODD)
    message = frame(feed)
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
    lines = [line for one in frame(Feed(view))["texts"] for line in one.text.split("\n")]
    assert {"good", "bad"} <= {*lines}
    assert len([line for line in lines if "RuntimeError" in line]) == 1


def test_a_saved_page_draws_every_metric(view):
    names = ["loss", *(f"metric {number}" for number in range(10))]
    record = Path(view.run.directory) / "metrics.jsonl"
    entry = json.loads(record.read_text()) | {"metrics": dict.fromkeys(names, 0.5)}
    record.write_text(json.dumps(entry) + "\n")
    feed = Feed(view)
    board = {metric for _, _, metric, _, _ in frame(feed)["points"]}
    assert board == set(names)
    assert set(re.findall(r">([^<]+)</text>", picture(page(view.run, feed.series.points)))) >= board


def picture(html):
    """Return the SVG of a saved page."""
    [source] = re.findall(r"data:image/svg\+xml;base64,([^\"]+)", html)
    return base64.b64decode(source).decode()


def test_a_page_shows_no_frames_of_mwmagics_own(view):
    frame_of = (
        '  File "/opt/site-packages/mwmagic/repairs/scope.py", line 1, in fit\n    original()\n'
    )
    Path(view.run.tasks["worker:0"].log).write_text(f"one\n{frame_of}two\n")
    lines = [line for one in frame(Feed(view))["texts"] for line in one.text.split("\n")]
    assert [line for line in lines if line][:2] == ["one", "two"]
