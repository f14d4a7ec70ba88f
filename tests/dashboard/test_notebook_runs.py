"""The table of runs as HTML: what a page without scripts shows, and what a script gets."""

from __future__ import annotations

import base64
import json
import re

import pytest

from mwmagic.dashboard.runs import SHOWN_ROWS, NotebookTable, curves_picture
from mwmagic.dashboard.static import front_end, styles
from mwmagic.experiments.compare import Curve, CurvePoint
from mwmagic.record import RunDirectory, runs
from mwmagic.record.metrics import metric_line

PROGRAM = "units = {units}\nlr = 0.1\n"


def record(folder, units=64, *, name="main", losses=(3.0, 2.0, 1.0), state="finished"):
    """Write the record of a run."""
    run = RunDirectory.create(folder, name)
    (run.paths.root / "main.py").write_text(PROGRAM.format(units=units))
    entry = {"task": "worker:0", "attempt": 1, "wall": 1e9, "source": "report", "kind": "train"}
    lines = [metric_line(**entry, epoch=1, metrics={"loss": one}) for one in losses]
    run.paths.metrics.write_text("\n".join(lines) + "\n")
    reached = {"value": losses[-1], "attempt": 1, "epoch": 1, "step": 1} if losses else None
    known = {"loss": {"last": reached, "best": reached}} if losses else {}
    launch = {"script": "main.py", "source": "main.py", "args": [], "given": {}}
    run.write(
        {
            "state": state,
            "started": 1e9,
            "ended": 1e9 + 5,
            "tasks": {"worker:0": {}},
            "launches": {"worker:0": launch},
            "metrics": {"worker:0": known},
        }
    )
    run.flush()


def shown(folder, **options):
    """Return what a page without scripts shows of the table, and what a script gets."""
    page = NotebookTable(runs(folder), **options)._repr_html_()
    facts = re.search(r'<script type="application/json" class="mwmagic-table">(.*?)</script>', page)
    plain = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    return plain, json.loads(facts[1])


def test_a_page_without_scripts_has_what_differs_and_a_line_with_the_rest(tmp_path):
    record(tmp_path, 64)
    record(tmp_path, 128, losses=(3.0, 0.5), state="failed")
    plain, _ = shown(tmp_path)
    heads = re.findall(r"<th style=[^>]*>([^<]*)</th>", plain)
    assert heads == ["run", "began", "took", "state", "units", "loss", "loss curve"]
    assert "<p>the same in all: program=main, tasks=1, lr=0.1</p>" in plain
    assert plain.count("border-left:4px solid #") == 2, "a mark in the colour of each state"
    assert "<b>0.5</b>" in plain
    [first, _] = re.findall(r'<img alt="(.*?)" .*?base64,(.*?)"', plain)
    assert first[0] == "█▅▁"
    assert b'd="M2.0 2.0L45.0 9.0L88.0 16.0"' in base64.b64decode(first[1])


def test_a_script_gets_what_sorts_and_what_can_be_chosen_besides(tmp_path):
    record(tmp_path, 64)
    record(tmp_path, 128, losses=())
    _, facts = shown(tmp_path)
    columns = {one["name"]: one for one in facts["columns"]}
    assert [name for name in columns if not columns[name]["shown"]] == [
        *("program", "tasks", "cause", "tags", "note", "lr")
    ]
    assert columns["loss"]["keys"] == [1.0, None]
    assert columns["units"]["keys"] == [64, 128]
    assert columns["loss curve"]["curves"] == [[3.0, 2.0, 1.0], []]
    assert facts["tones"] == ["good", "good"]


def test_nothing_in_a_page_is_markup(tmp_path):
    for units in ("'</script><img src=x onerror=alert(1)>'", "'<b>'"):
        record(tmp_path, units, losses=(float("nan"), 1.0))
    plain, facts = shown(tmp_path)
    assert "<img src=x" not in NotebookTable(runs(tmp_path))._repr_html_()
    assert "&lt;b&gt;" in plain
    [units] = [one for one in facts["columns"] if one["name"] == "units"]
    assert units["texts"] == ["</script><img src=x onerror=alert(1)>", "<b>"]


@pytest.mark.slow
def test_a_page_holds_the_latest_of_very_many_and_says_so(tmp_path):
    for _ in range(SHOWN_ROWS + 3):
        record(tmp_path, losses=())
    plain, facts = shown(tmp_path)
    assert facts["columns"][0]["texts"][0] == "4"
    assert len(facts["tones"]) == SHOWN_ROWS
    assert "3 more runs: --where, --last and --best choose" in plain
    _, facts = shown(tmp_path, sort="run")
    assert facts["columns"][0]["texts"][0] == "1"
    assert "no run matches" in NotebookTable(runs(tmp_path), where="units>64")._repr_html_()


def test_the_files_for_the_browser_cannot_end_the_script_that_holds_them():
    text = front_end("chart.js", "runs.js") + styles("chart.css", "runs.css")
    assert "</script" not in text
    assert "<!--" not in text


def test_the_spread_of_workers_is_drawn_whatever_the_runs_are_called():
    points = [CurvePoint(step, None, 1.0 * step, 2.0, 1.0, 3.0) for step in (1, 2)]
    svg = curves_picture([Curve(3, "loss", points)], {3: "trial 7"}, "step").svg
    assert "trial 7" in svg
    assert 'fill-opacity="0.2"' in svg
