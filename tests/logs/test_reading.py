"""Logs as people ask to see them."""

from __future__ import annotations

import pytest

from mwmagic.errors import BadArguments
from mwmagic.logs.reading import read

NOTICE = b"WARNING: All log messages before absl::InitializeLog() is called are written to STDERR\n"


def test_a_log_is_shown_as_a_terminal_would():
    assert read(b"1%\r100%\n\x1b[1mbold\x1b[0m\nend") == ["100%", "bold", "end"]
    assert read(b"") == []
    assert read(b"\n\n") == ["", ""]


def test_notices_are_folded_with_the_way_to_see_them():
    lines = read(NOTICE * 3 + b"mine\n")
    assert lines[-1] == "mine"
    assert len(lines) == 2
    assert lines[0].endswith("hidden, `--raw` shows them")


def test_raw_is_every_byte():
    data = NOTICE + b"1%\r100%\n\x1b[1mbold\xff\n\nend\n"
    text = data.decode("utf-8", "replace")
    assert read(data, raw=True) == text[:-1].split("\n")
    assert read(b"no end", raw=True) == ["no end"]
    assert read(b"", raw=True) == []


def test_the_tail_says_what_is_before_it():
    data = b"".join(b"%d\n" % number for number in range(10))
    assert read(data, tail=2) == ["... 8 earlier lines not shown, `--tail 0` shows them", "8", "9"]
    assert read(data, tail=10) == [str(number) for number in range(10)]
    assert read(data, tail=0) == read(data, tail=-1) == read(data)


def test_grep_takes_lines_and_leaves_notices_out():
    data = NOTICE + b"loss: 1\nother\nloss: 2\n"
    assert read(data, grep="loss: [0-9]") == ["loss: 1", "loss: 2"]
    assert read(data, grep="hidden") == []
    assert read(data, grep="InitializeLog") == []
    assert len(read(data, grep="InitializeLog", raw=True)) == 1
    assert read(data, grep="loss", tail=1)[1:] == ["loss: 2"]


def test_a_pattern_that_is_none_is_named():
    with pytest.raises(BadArguments, match=r"--grep '\(' is no regular expression"):
        read(b"x\n", grep="(")
