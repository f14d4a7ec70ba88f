"""Lines that are too many for a notebook."""

from __future__ import annotations

import pytest

from mwmagic.client.live import cell
from mwmagic.client.live.cell import Flood


@pytest.fixture
def said():
    return []


@pytest.fixture
def lines(said):
    lines = Flood(said.append)
    lines.pass_time(0.0)
    return lines


def test_a_few_lines_are_shown_at_once(lines, said):
    expected = [str(number) for number in range(1000)]
    for line in expected:
        lines.feed(line)
    assert said == expected


def test_the_first_and_the_last_of_too_many_are_shown(lines, said):
    for number in range(300_000):
        lines.feed(f"line {number}")
    first = len(said)
    assert 1_000 < first < 10_000
    lines.release()
    left = 300_000 - first - cell.LAST_LINES
    assert said[first] == f"… {left:,} lines left out here; `%mw_logs` shows them"
    assert said[first + 1 :] == [f"line {n}" for n in range(300_000 - cell.LAST_LINES, 300_000)]


def test_what_was_held_back_is_shown_once_there_is_room_again(lines, said):
    for number in range(10_000):
        lines.feed(f"line {number}")
    first = len(said)
    lines.pass_time(1.0)
    assert len(said) == first
    lines.pass_time(60.0)
    assert said[-1] == "line 9999"
    lines.feed("next")
    assert said[-1] == "next"


def test_lines_that_come_slowly_are_all_shown(lines, said):
    for number in range(100_000):
        lines.pass_time(number / 100)
        lines.feed(f"line {number}")
    assert len(said) == 100_000


def test_a_line_without_an_end_is_cut(lines, said):
    lines.feed("x" * 10_000_000)
    assert said == ["x" * cell.LONGEST_CHARACTERS + " …"]
