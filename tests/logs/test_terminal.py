import itertools
import tracemalloc

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mwmagic.logs.terminal import LINE_COLUMNS, Terminal, clipped, plain, shown

PIECES = st.sampled_from(
    [
        b"a", b"loss: 0.5", b"\n", b"\r", b"\b", b"\b\b\b", b"\t", b"\x1b", b"\x1b[", b"\x1b[1m",
        b"\x1b[32m", b"\x1b[0m", b"\x1b[m", b"\x1b[K", b"\x1b[2K", b"\x1b[1K", b"\x1b[3D",
        b"\x1b[5C", b"\x1b[9G", b"\x1b[38;5;9m", b"\x1b[48;2;1;2;3m", b"\x1b[A", b"\x1b(B",
        b"\x1b]0;title\x07", b"\x1b]8;;u\x1b\\", b"\x1b]open", b"\x07", b"\x00", b"\xff", b"[",
        b"m", b"\xe2\x94\x81", b"\xe2", b"\x94", b"\xf0\x9f\x98\x80", b"\xc2\x9b", b"\x7f",
        b"\xed\xa0\x80",
    ]
)  # fmt: skip
STREAMS = st.lists(PIECES | st.binary(max_size=6), max_size=40).map(b"".join)


def cut(data, places):
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges)]


def fed(parts, *, ansi):
    terminal = Terminal(ansi=ansi)
    lines = [line for part in parts for line in terminal.feed(part)]
    return lines, terminal.current, terminal.close()


@settings(deadline=None)
@given(STREAMS, st.lists(st.integers(0, 10_000), max_size=12), st.booleans())
@example(data=b"\x1b]open\x1b\\x\n", places=[6, 7], ansi=False)
@example(data=b"\xe2\x94\x81\n", places=[1, 2], ansi=True)
@example(data=b"a\r\nb", places=[2], ansi=False)
def test_lines_do_not_depend_on_how_bytes_are_cut(data, places, ansi):
    assert fed(cut(data, places), ansi=ansi) == fed([data], ansi=ansi)


@settings(deadline=None)
@given(STREAMS)
def test_colours_change_no_character(data):
    assert [plain(line) for line in shown(data, ansi=True)] == shown(data, ansi=False)


@settings(deadline=None)
@given(st.text(st.characters(blacklist_categories=["Cc", "Cs"]) | st.sampled_from("\n\t")))
def test_plain_text_is_its_lines(text):
    lines = text.split("\n")
    assert shown(text.encode(), ansi=False) == (lines if lines[-1] else lines[:-1])


@settings(deadline=None)
@given(st.lists(st.text(st.sampled_from("abc ━"), max_size=8), max_size=6))
def test_carriage_returns_overwrite_from_the_left(drafts):
    expected = ""
    for draft in drafts:
        expected = draft + expected[len(draft) :]
    assert shown("\r".join([*drafts, "\n"]).encode(), ansi=False) == [expected]


@pytest.mark.parametrize(
    ("data", "line"),
    [
        ("12345\b\bx", "123x5"),
        ("ab\b\b\b\b\bX", "Xb"),
        ("12345\r\x1b[K", ""),
        ("12345\x1b[2D\x1b[K", "123"),
        ("12345\x1b[2D\x1b[1Kx", "   x5"),
        ("12345\x1b[2Kx", "     x"),
        ("ab\x1b[3Cc", "ab   c"),
        ("abcdef\x1b[2Gx", "axcdef"),
        ("a\x1b]0;a title\x07b", "ab"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("a\x1b(Bb\x1b7\x1b[?25lc", "abc"),
        ("a\x1b[12;24Ab\x1b[2Jc", "  c"),
        ("a\x07b\x00c\x7fd", "abcd"),
        ("tab\there", "tab\there"),
        ("a\x0bb\x0cc\u2028d\x85e", "abc\u2028de"),
        ("\x1b[99999Cx", " " * (LINE_COLUMNS - 1) + "x"),
        ("\x1b[\u0664Cx", "[\u0664Cx"),
    ],
)
def test_what_a_terminal_shows(data, line):
    assert shown(data.encode() + b"\n", ansi=False) == [line]


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        ("a\x1b[31mb\x1b[0mc", ["a\x1b[31mb\x1b[0mc"]),
        ("\x1b[1;31mx\ny\x1b[0m", ["\x1b[1;31mx\x1b[0m", "\x1b[1;31my\x1b[0m"]),
        ("\x1b[31mab\r\x1b[32mx", ["\x1b[32mx\x1b[0m\x1b[31mb\x1b[0m"]),
        ("\x1b[1;4;31mx\x1b[22;24;39my", ["\x1b[1;4;31mx\x1b[0my"]),
        ("\x1b[38;5;196mx\x1b[91my", ["\x1b[38;5;196mx\x1b[0m\x1b[91my\x1b[0m"]),
        ("\x1b[38;2;1;2;3;1mx", ["\x1b[38;2;1;2;3;1mx\x1b[0m"]),
        ("\x1b[38mx\x1b[999;4:3my", ["xy"]),
    ],
)
def test_colours_stay_with_their_characters(data, lines):
    assert shown(data.encode() + b"\n", ansi=True) == [*lines]


def test_broken_utf8_becomes_replacement_characters():
    assert shown(b"a\xffb\xe2\x94\n\xe2\x94\x81", ansi=False) == ["a\ufffdb\ufffd", "━"]


def test_a_line_is_handed_out_once_and_the_current_one_on_request():
    terminal = Terminal()
    assert terminal.feed(b"one\ntw") == ["one"]
    assert terminal.current == "tw"
    assert terminal.feed(b"o\rTW\n\xe2") == ["TWo"]
    assert terminal.current == ""
    assert terminal.close() == ["\ufffd"]
    assert terminal.close() == []


@pytest.mark.slow
def test_a_line_without_end_wraps_and_stays_small():
    terminal = Terminal(ansi=True)
    lines = []
    tracemalloc.start()
    for _ in range(160):
        lines += [len(line) for line in terminal.feed(b"x" * 65_536)]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert set(lines) == {LINE_COLUMNS}
    assert peak < 8_000_000
    assert shown(b"x" * (LINE_COLUMNS + 1) + b"\rab\n", ansi=False) == ["x" * LINE_COLUMNS, "ab"]


def test_an_endless_escape_sequence_is_given_up():
    terminal = Terminal()
    assert terminal.feed(b"\x1b]" + b"a" * 5000) == []
    assert terminal.current == "]" + "a" * 5000
    assert terminal.feed(b"\x1b[" + b"1" * 100 + b"\n") == ["]" + "a" * 5000 + "[" + "1" * 100]


def test_keras_bars_leave_their_last_draft(sample):
    lines = shown(sample("keras3-fit"), ansi=False)
    bars = [line for line in lines if "10/10" in line]
    assert bars[0] == (
        "10/10 ━━━━━━━━━━━━━━━━━━━━ 1s 72ms/step - accuracy: 0.5094 - loss: 0.6954"
        " - val_accuracy: 0.5406 - val_loss: 0.6888"
    )
    assert len(bars) == 5
    assert "\x1b[32m━━━━━━━━━━━━━━━━━━━━\x1b[0m" in shown(sample("keras3-fit"), ansi=True)[-2]


def test_what_is_clipped_keeps_its_colours_whole():
    red = "a\x1b[31mred\x1b[0m and"
    assert clipped(red, len(red)) == red
    assert [clipped(red, limit) for limit in (1, 2, 4)] == [
        "a",
        "a\x1b[31mr\x1b[0m",
        "a\x1b[31mred\x1b[0m",
    ]
    assert clipped(red, 7) == "a\x1b[31mred\x1b[0m an\x1b[0m"
    assert clipped("plain text", 5) == "plain"


def test_plain_strips_every_escape():
    assert plain("\x1b[1ma\x1b[0m \x1b]0;t\x07b\x1b(B\x1b[?25l\x1b") == "a b"
    assert plain("no escape") == "no escape"
