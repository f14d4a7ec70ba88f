"""What the pages of a dashboard are sent, and when."""

from __future__ import annotations

from mwmagic.dashboard.feed import (
    LEAST_CHARACTERS,
    PACKET_CHARACTERS,
    SILENCE_SECONDS,
    UNANSWERED_LIMIT,
    WINDOW_CHARACTERS,
    Cursor,
    Pages,
)
from mwmagic.dashboard.journal import (
    MOST_CHARACTERS,
    MOST_LINES,
    PIECE_BYTES,
    TEXT_CHARACTERS,
    TEXT_LINES,
    Journal,
    Whole,
)
from mwmagic.logs.lines import LogLine, Mark


def test_more_is_sent_when_every_page_has_answered_or_after_a_while():
    pages = Pages()
    assert pages.room(0.0) == 0
    pages.heard("one", Cursor())
    pages.heard("two", Cursor(5, 5, 5))
    assert pages.room(0.0) == PACKET_CHARACTERS
    assert pages.position() == Cursor()
    question = pages.send(Cursor(9, 9, 9), WINDOW_CHARACTERS, 0.0)
    pages.heard("one", Cursor(9, 9, 9), question)
    assert pages.room(0.1) == 0
    assert pages.room(SILENCE_SECONDS + 0.1) == LEAST_CHARACTERS
    pages.heard("two", Cursor(9, 9, 9), question)
    assert pages.room(0.2) == PACKET_CHARACTERS


def test_small_packets_do_not_wait_for_answers_and_few_ask_for_one():
    pages = Pages()
    pages.heard("page", Cursor())
    times = [2 + step / 20 for step in range(20)]
    questions = [pages.send(Cursor(step), 100, time) for step, time in enumerate(times)]
    assert [bool(question) for question in questions] == [True] + 19 * [False]
    assert pages.room(2.9) == PACKET_CHARACTERS
    pages.heard("page", Cursor(0), questions[0])
    assert pages.send(Cursor(20), 100, 3.1), "a second later"


def test_an_answer_leaves_what_was_sent_since_on_its_way_and_another_word_asks_for_it_again():
    pages = Pages()
    pages.heard("page", Cursor())
    question = pages.send(Cursor(5), WINDOW_CHARACTERS, 0.0)
    assert not pages.send(Cursor(7), 10, 0.1)
    pages.heard("page", Cursor(5), question)
    assert pages.position() == Cursor(7)
    pages.heard("page", Cursor(5))
    assert pages.position() == Cursor(5)
    question = pages.send(Cursor(7), WINDOW_CHARACTERS, 0.2)
    pages.heard("page", Cursor(5), question)
    assert pages.position() == Cursor(5), "it missed the packet that asked"


def test_a_page_that_never_answers_is_forgotten():
    pages = Pages()
    pages.heard("closed", Cursor())
    for number in range(UNANSWERED_LIMIT + 3):
        pages.send(Cursor(number), 0, 2 * SILENCE_SECONDS * number)
    assert not pages.known


def test_the_journal_keeps_the_newest_lines_in_numbered_texts():
    journal = Journal()
    journal.add(0, [LogLine(0, str(number)) for number in range(MOST_LINES + 10)])
    assert (journal.first(0), journal.next) == (1, MOST_LINES // TEXT_LINES + 1)
    texts, end = journal.texts(0, 10**9)
    assert end == journal.next
    assert lines(texts) == [str(number) for number in range(TEXT_LINES, MOST_LINES + 10)]
    assert {text.lines for text in texts} == {TEXT_LINES, 10}
    assert all(len(text.text) < TEXT_CHARACTERS for text in texts)
    for _ in range(MOST_CHARACTERS // TEXT_CHARACTERS):
        journal.add(
            1, [LogLine(0, "x" * (TEXT_CHARACTERS - 2)), LogLine(0, "long"), LogLine(0, "last")]
        )
    texts, _ = journal.texts(0, 10**9)
    assert sum(len(text.text) for text in texts) <= MOST_CHARACTERS
    assert [text.text.count("\n") for text in texts[-2:]] == [1, 0]


def test_a_task_that_prints_much_takes_no_lines_from_the_others():
    journal = Journal()
    for number in range(3 * MOST_LINES // TEXT_LINES):
        journal.add(0, [LogLine(0, "x")] * TEXT_LINES)
        if number < 3:
            journal.add(1, [LogLine(0, f"quiet {number}")])
    texts, end = journal.texts(0, 10**9)
    assert lines(text for text in texts if text.task == 1) == ["quiet 0", "quiet 1", "quiet 2"]
    assert len(lines(text for text in texts if text.task == 0)) == MOST_LINES
    assert [text.number for text in texts] == sorted(text.number for text in texts)
    assert journal.first(1) < journal.first(0) < end == journal.next
    assert journal.texts(journal.first(0), 10**9)[0] == texts[3:]


def test_when_all_tasks_print_too_much_the_longest_loses_lines():
    journal = Journal()
    journal.add(1, [LogLine(0, "quiet")])
    for _ in range(MOST_CHARACTERS // TEXT_CHARACTERS):
        for task in (0, 2, 3):
            journal.add(task, [LogLine(0, "x" * TEXT_CHARACTERS)])
    texts, _ = journal.texts(0, 10**9)
    size = {task: sum(len(one.text) for one in texts if one.task == task) for task in range(4)}
    assert size[1] == len("quiet")
    assert MOST_CHARACTERS / 2 < sum(size.values()) < MOST_CHARACTERS
    assert max(size[0], size[2], size[3]) - min(size[0], size[2], size[3]) <= TEXT_CHARACTERS


def test_a_text_is_of_one_task_and_one_kind():
    journal = Journal()
    journal.add(
        0, [LogLine(Mark.NOISE, "a"), LogLine(0, "b"), LogLine(0, "c"), LogLine(Mark.ERROR, "d")]
    )
    journal.add(1, [LogLine(Mark.ERROR, "e")])
    wanted = [(1, 0, 0, "b\nc"), (2, 0, 2, "d"), (3, 1, 2, "e")]
    assert journal.texts(1, 10**9) == (wanted, 4)


def test_the_journal_sends_pieces_that_join_without_a_gap():
    journal = Journal()
    for number in range(100):
        journal.add(number % 3, [LogLine(0, f"line {number}")])
    found, at = [], 0
    while at < journal.next:
        texts, at = journal.texts(at, 50)
        assert len(texts) <= 3
        found += lines(texts)
    assert found == [f"line {number}" for number in range(100)]


def lines(texts):
    return [line for text in texts for line in text.text.split("\n")]


def test_whole_logs_come_in_pieces(tmp_path):
    first, second, missing = (tmp_path / name for name in ("a.log", "b.log", "c.log"))
    assert Whole([missing]).size == 0
    assert Whole([missing]).piece(0) == b""
    first.write_bytes(bytes(range(256)) * (PIECE_BYTES // 128 + 1))
    second.write_bytes(b"short")
    alone, both = Whole([first]), Whole([first, second])
    second.write_bytes(b"short, at first")
    assert gathered(alone) == [
        first.read_bytes()[at : at + PIECE_BYTES] for at in (0, PIECE_BYTES, 2 * PIECE_BYTES)
    ]
    wanted = b"==> a.log <==\n" + first.read_bytes() + b"==> b.log <==\nshort"
    assert b"".join(gathered(both)) == wanted
    assert both.size == len(wanted)


def gathered(whole):
    """Return the pieces of whole logs, as a page asks for them."""
    pieces, at = [], 0
    while piece := whole.piece(at):
        pieces.append(piece)
        at += len(piece)
    return pieces
