"""Logs as people ask to see them."""

from __future__ import annotations

import pytest

from mwmagic.client import reading
from mwmagic.errors import BadArguments
from mwmagic.logs.lines import LINE_CHARACTERS, Lines
from mwmagic.logs.noise import Noise

NOTICE = b"WARNING: All log messages before absl::InitializeLog() is called are written to STDERR\n"


@pytest.fixture
def read(tmp_path):
    """Read a log of some bytes."""
    path = tmp_path / "worker-0.log"

    def read(data, **options):
        path.write_bytes(data)
        return reading.read(path, **options)

    return read


def test_a_log_is_shown_as_a_terminal_would(read):
    assert read(b"1%\r100%\n\x1b[1mbold\x1b[0m\nend") == ["100%", "bold", "end"]
    assert read(b"") == []
    assert read(b"\n\n") == ["", ""]


def test_notices_are_folded_with_the_way_to_see_them(read):
    lines = read(NOTICE * 3 + b"mine\n")
    assert lines[-1] == "mine"
    assert len(lines) == 2
    assert lines[0] == "3 lines of framework notices hidden, `--raw` shows them"
    assert read(NOTICE)[0].startswith("1 line of")


def test_raw_is_every_byte(read):
    data = NOTICE + b"1%\r100%\n\x1b[1mbold\xff\n\nend\n"
    text = data.decode("utf-8", "replace")
    assert read(data, raw=True) == text[:-1].split("\n")
    assert read(b"no end", raw=True) == ["no end"]
    assert read(b"", raw=True) == []


def test_the_tail_says_what_is_before_it(read):
    data = b"".join(b"%d\n" % number for number in range(10))
    assert read(data, tail=2) == ["... 8 earlier lines not shown, `--tail 0` shows them", "8", "9"]
    assert read(data, tail=10) == [str(number) for number in range(10)]
    assert read(data, tail=0) == read(data, tail=-1) == read(data)


def test_grep_takes_lines_and_leaves_notices_out(read):
    data = NOTICE + b"loss: 1\nother\nloss: 2\n"
    assert read(data, grep="loss: [0-9]") == ["loss: 1", "loss: 2"]
    assert read(data, grep="hidden") == []
    assert read(data, grep="InitializeLog") == []
    assert len(read(data, grep="InitializeLog", raw=True)) == 1
    assert read(data, grep="loss", tail=1)[1:] == ["loss: 2"]


def test_a_bad_pattern_is_named(read):
    with pytest.raises(BadArguments, match=r"--grep '\(' is not a valid regular expression"):
        read(b"x\n", grep="(")


def test_a_short_tail_reads_only_the_end_of_a_long_log(read, monkeypatch):
    fed = []
    feed = Lines.feed
    monkeypatch.setattr(Lines, "feed", lambda self, data: fed.append(len(data)) or feed(self, data))
    data = b"".join(b"line %d\n" % number for number in range(60_000))
    assert read(data, tail=2) == [
        "... earlier lines not shown, `--tail 0` shows them",
        "line 59998",
        "line 59999",
    ]
    assert sum(fed) <= reading.TAIL_BYTES[0]
    assert len(read(data, tail=50_000)) == 50_001
    assert read(data, tail=50_000)[1] == "line 10000"


def test_a_tail_of_more_lines_than_there_are_is_the_whole(read):
    data = b"x" * 50 + b"\n"
    assert read(data * 20_000, tail=30_000) == ["x" * 50] * 20_000


def test_a_line_without_end_is_cut_and_its_place_named(read, tmp_path):
    for raw in (False, True):
        lines = read(b"first\n" + b"y" * 20_000_000 + b"\nlast\n", tail=4, raw=raw)
        assert lines[0].startswith("... earlier lines not shown")
        assert lines[-1] == "last"
        assert lines[-2].startswith("yyyy")
        assert str(tmp_path / "worker-0.log") in lines[-2]
        assert sum(map(len, lines)) < 20_000


def test_a_tail_is_bounded_in_characters(read):
    line = b"z" * LINE_CHARACTERS + b"\n"
    lines = read(line * 1000, tail=900)
    assert sum(map(len, lines[1:])) <= reading.TAIL_CHARACTERS
    assert lines[0] == f"... {1000 - len(lines[1:])} earlier lines not shown, `--tail 0` shows them"


def test_all_lines_raw_are_never_cut(read):
    text = "w" * (LINE_CHARACTERS * 3)
    assert read(text.encode(), raw=True) == [text]
    assert read(text.encode())[0].startswith(text[:LINE_CHARACTERS] + " … (12,000 characters")


def test_a_tail_of_matches_looks_through_the_whole_log(read):
    data = b"match 1\n" + b"other\n" * 20_000 + b"match 2\n"
    assert read(data, tail=2, grep="match") == ["match 1", "match 2"]


def test_a_parser_that_raises_costs_its_line_and_is_named(read, monkeypatch):
    def hides(_self, line):
        if "bad" in line:
            raise RuntimeError(line)
        return False

    monkeypatch.setattr(Noise, "hides", hides)
    *lines, note = read(b"good\nbad one\nbad two\ngood\n")
    assert lines == ["good", "bad one", "bad two", "good"]
    assert "RuntimeError: bad one" in note


def test_frames_of_mwmagics_own_are_shown_only_by_raw(read):
    ours = [
        '  File "/opt/lib/python3.11/site-packages/mwmagic/repairs/fit.py", line 121, in fit',
        "    return original(self, *args, **kwargs)",
        "           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^",
    ]
    others = [
        "Traceback (most recent call last):",
        '  File "/home/ann/main.py", line 13, in <module>',
        "    model.fit(data)",
        '  File "/opt/lib/python3.11/site-packages/keras/src/utils/x.py", line 122, in handler',
        "    raise error",
        "ValueError: in user code:",
        "",
        '    File "/home/ann/main.py", line 8, in call  *',
        "        return f(x)",
        "",
        "    ValueError: bad",
        "end",
    ]
    indented = [f"  {line}" for line in ours[:2]]
    lines = [*others[:3], *ours, *ours, *others[3:7], *indented, *others[7:]]
    data = "\n".join(lines).encode()
    assert read(data) == others
    assert read(data, raw=True) == lines
