"""Logs that grow."""

from __future__ import annotations

import pytest

from mwmagic.logs import Guard
from mwmagic.logs.lines import Follower, Lag, Lines, Mark
from mwmagic.logs.noise import Noise

NOTICE = "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR"


@pytest.fixture
def faults():
    return []


@pytest.fixture
def follow(tmp_path, faults):
    """Follow a log from its beginning."""
    return lambda **options: Follower(tmp_path / "log", Guard(faults.append), **options)


def test_a_follower_reads_split_writes_and_marks_tracebacks(follow):
    follower = follow()
    assert follower.read(100) == []
    text = 'one\nTraceback (most recent call last):\n  File "a.py"\nValueError: é\ntwo\n'.encode()
    lines = []
    for index in range(len(text)):  # the é's bytes come one by one
        with follower.path.open("ab") as file:
            file.write(text[index : index + 1])
        lines += follower.read(100)
    assert [line.text for line in lines][-2:] == ["ValueError: é", "two"]
    assert [line.mark for line in lines] == [0, Mark.ERROR, Mark.ERROR, Mark.ERROR, 0]


@pytest.mark.parametrize("colour", ["", "\x1b[31m"])
def test_a_syntax_error_is_marked_like_any_error(follow, colour):
    follower = follow(ansi=True)
    error = [
        '  File "/a b/main.py", line 3',
        "    x = = 1",
        "        ^",
        "SyntaxError: invalid syntax",
    ]
    follower.path.write_text("".join(f"{colour}{line}\n" for line in ["up", *error, "after"]))
    marks = [line.mark for line in follower.rest()]
    assert marks == [Mark.PLAIN, *[Mark.ERROR] * len(error), Mark.PLAIN]


def test_a_follower_that_jumped_ahead_keeps_the_colours(follow):
    follower = follow(lag=Lag(2**19, "{} left out".format), ansi=True)
    follower.path.write_text("\x1b[31mred\x1b[0m\n" * 2**16)
    lines = follower.rest()
    assert lines[0].mark == Mark.NOTE
    assert {line.text for line in lines[1:]} == {"\x1b[31mred\x1b[0m"}


@pytest.mark.slow
def test_a_follower_that_is_far_behind_says_what_it_leaves_out(follow):
    follower = follow(lag=Lag(2**20, "{} left out".format))
    count = 300_000
    follower.path.write_text("".join(f"line {number}\n" for number in range(count)))
    lines = []
    while follower.behind:
        lines += follower.read(2**16)
    note, first = lines[0], lines[1]
    left = int(note.text.split()[0].replace(",", ""))
    assert note.mark == Mark.NOTE
    assert first.text == f"line {left}"
    assert lines[-1].text == f"line {count - 1}"
    assert left + len(lines) - 1 == count


def test_a_follower_without_patience_to_lose_reads_every_line(follow):
    follower = follow()
    follower.path.write_text("line\n" * 400_000)
    assert len(follower.rest()) == 400_000
    assert follower.behind == 0


def test_lines_come_when_they_end_and_the_last_at_the_close(follow):
    follower = follow()
    assert follower.rest() == follower.close() == []
    follower.path.write_text(f"one\n{NOTICE}\n5%\r50")
    assert follower.rest() == [(Mark.PLAIN, "one"), (Mark.NOISE, NOTICE)]
    assert follower.current == "50"
    assert follower.close() == [(Mark.PLAIN, "50")]


def test_a_layer_that_raises_costs_its_line_and_is_reported_once(follow, faults, monkeypatch):
    def hides(_self, line):
        if "bad" in line:
            raise RecursionError("too deep \ud800")
        return "noise" in line

    monkeypatch.setattr(Noise, "hides", hides)
    follower = follow()
    follower.path.write_text("bad\nnoise\nbad\ngood\n")
    assert [line.mark for line in follower.rest()] == [0, Mark.NOISE, 0, 0]
    [fault] = faults
    assert fault.parser == "notices"
    assert "RecursionError: too deep" in fault.error
    assert fault.error.encode()


def test_a_terminal_that_raises_is_replaced(follow, faults, monkeypatch):
    follower = follow()
    feed = follower._lines._terminal.feed
    monkeypatch.setattr(follower._lines._terminal, "feed", lambda data: feed(data)[99])
    follower.path.write_text("bad\n")
    assert follower.rest() == []
    assert [fault.parser for fault in faults] == ["terminal"]
    with follower.path.open("a") as file:
        file.write("good\n")
    assert follower.rest() == [(Mark.PLAIN, "good")]


def test_colours_stay_where_they_are_asked_for(faults):
    lines = Lines(Guard(faults.append), ansi=True)
    assert lines.feed(b"\x1b[31mred\nstill\x1b[0m\n")[1].text == "\x1b[31mstill\x1b[0m"
