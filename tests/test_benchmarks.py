"""The table of benchmarks: how figures become rows, and that a row can be measured alone."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import scale, table
from benchmarks.__main__ import chosen
from benchmarks.case import Line, Plan
from benchmarks.catalogue import CASES
from benchmarks.machine import BUSY_CORES, busy
from benchmarks.ratio import alternated, percentile, ratio
from benchmarks.runner import Result
from mwmagic.model.messages import REQUESTS, check

ROOT = Path(__file__).parents[1]
LINE = Line("a launch", "s", [1.0, 2.0, 6.0, 2.0, 2.0], "by hand", [2.0, 2.0, 2.0, 2.0, 2.0], 0.5)


def row(name, date="2026-01-01", **fields):
    [found] = table.rows(Result(name, [LINE], **fields), date)
    return [cell.strip() for cell in found.split("|")[1:-1]]


def test_a_ratio_is_the_median_of_the_rounds_and_not_of_the_figures():
    found = ratio([1.0, 2.0, 6.0, 2.0], [1.0, 4.0, 2.0, 2.0])
    assert (found.median, found.low, found.high) == (1.0, 0.875, 1.5)
    assert ratio([1.0], []) is None
    assert ratio([1.0], [0.0]) is None


def test_the_ways_take_turns_in_going_first():
    order = []
    found = alternated(2, a=lambda: order.append("a"), b=lambda: order.append("b"))
    assert order == ["a", "b", "b", "a"]
    assert found == {"a": [None] * 2, "b": [None] * 2}


def test_a_percentile_is_a_value_that_occurred():
    assert percentile([3, 1, 2], 0.5) == 2
    assert percentile([3, 1, 2], 0.99) == 3


def test_a_row_has_the_figures_and_what_they_are_compared_with():
    cells = row("launch-2")
    expected = ["`launch-2`", "a launch", "2 s", "by hand 2 s", "1.00", "1.00 to 1.00", "0.5", "5"]
    assert cells == [*expected, "0.00", "2026-01-01"]
    assert len(cells) == len(table.HEADS)


def test_a_busy_machine_is_marked_by_what_it_did_meanwhile():
    assert row("launch-2", other=BUSY_CORES)[-2].endswith(table.BUSY)
    assert not row("launch-2", other=BUSY_CORES / 2)[-2].endswith(table.BUSY)
    assert busy() > 0


def test_what_was_not_measured_says_why():
    [found] = table.rows(Result("peer-ray", failure="skipped: there is no network"), "2026-01-01")
    assert "there is no network" in found
    assert found.count("|") == len(table.HEADS) + 1


def test_names_choose_rows_by_how_they_begin():
    names = [one.name for one in CASES]
    assert len(set(names)) == len(names)
    assert {one.name for one in chosen(["scale-1", "flood-1"], quick=True)} == {
        *("scale-1000-hosts", "flood-1", "flood-1000"),
    }
    assert {one.name for one in chosen([], quick=True)} < set(names)
    with pytest.raises(SystemExit, match="lunch"):
        chosen(["lunch"], quick=False)


def test_quick_is_fewer_rounds_unless_the_user_says_how_many():
    assert (Plan().rounds(9, 2), Plan(quick=True).rounds(9, 2)) == (9, 2)
    assert Plan(quick=True, asked=5).rounds(9, 2) == 5


def test_the_page_keeps_the_rows_that_were_not_measured_again(tmp_path, monkeypatch):
    path = tmp_path / "performance.md"
    marks = (table.NOTICED_BEGIN, table.NOTICED_END, table.BEGIN, table.END)
    path.write_text("\n".join(["before", *marks, "after\n"]))
    monkeypatch.setattr(table, "PATH", path)
    order = ["restart-2", "launch-2"]

    def write(name, date):
        table.write(table.rows(Result(name, [LINE]), date), order)

    for name, date in (("launch-2", "2026-01-01"), ("restart-2", "2026-01-02")):
        write(name, date)
    write("launch-2", "2026-01-03")
    rows = [line for line in path.read_text().splitlines() if line.startswith("| `")]
    assert [table.name(line) for line in rows] == order
    assert [line.split("|")[-2].strip() for line in rows] == ["2026-01-02", "2026-01-03"]
    assert path.read_text().startswith("before\n")
    assert path.read_text().endswith("after\n")
    monkeypatch.setattr(table, "shape", lambda: "another machine")
    write("launch-2", "2026-01-04")
    assert "2026-01-02" not in path.read_text(), "figures of two machines are not mixed"


def test_the_page_begins_with_what_a_person_notices_in_its_table():
    text = table.PATH.read_text()
    assert text.index(table.NOTICED_BEGIN) < text.index(table.BEGIN) < text.index(table.END)
    rows = table.noticed(text.partition(table.BEGIN)[2].splitlines())
    assert rows in text
    assert len(rows.splitlines()) == 2 + len(table.NOTICED)


def test_a_cluster_whose_scale_is_measured_gets_a_launch_that_supervisors_take(tmp_path):
    sent = {}

    async def ask(kind, **fields):
        sent.update(fields, type=kind, id=1)

    client = scale.Client(None, None)
    client.ask = ask
    asyncio.run(client.launch(tmp_path))
    assert check(sent, REQUESTS) is sent


@pytest.mark.slow
def test_one_row_can_be_measured_alone():
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "flood-1000", "--rounds", "2"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = [line for line in done.stdout.splitlines() if line.startswith("| `")]
    assert len(found) == 1
    cells = [cell.strip() for cell in found[0].split("|")]
    assert cells[1] == "`flood-1000`"
    assert float(cells[5]) > 0
    assert cells[8] == "2"
