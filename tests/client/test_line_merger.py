"""Lines that several tasks print alike."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mwmagic.client.live.cell import LineMerger

BOTH = ("a", "b")


def test_a_line_that_all_print_comes_once():
    merger = LineMerger(2)
    merger.add("a", "Epoch 1", 0.0)
    assert merger.due(0.1) == []
    merger.add("b", "Epoch 1", 0.1)
    assert merger.due(0.1) == [(BOTH, "Epoch 1")]


def test_a_line_that_one_prints_waits_a_moment_for_the_others():
    merger = LineMerger(2)
    merger.add("a", "only here", 0.0)
    assert merger.due(0.2) == []
    assert merger.due(0.3) == [(("a",), "only here")]
    merger.add("b", "only here", 0.4)
    assert merger.due() == [(("b",), "only here")]


def test_lines_that_differ_in_a_number_are_two():
    merger = LineMerger(2)
    merger.add("a", "loss: 0.5", 0.0)
    merger.add("b", "loss: nan", 0.0)
    assert merger.due() == [(("a",), "loss: 0.5"), (("b",), "loss: nan")]


def test_what_a_task_says_twice_comes_twice_and_in_order():
    merger = LineMerger(2)
    for task in BOTH:
        for text in ("x", "y", "x"):
            merger.add(task, text, 0.0)
    assert merger.due(0.0) == [(BOTH, "x"), (BOTH, "y"), (BOTH, "x")]


def test_a_line_does_not_overtake_one_that_waits():
    merger = LineMerger(2)
    merger.add("a", "mine", 0.0)
    for task in BOTH:
        merger.add(task, "ours", 0.0)
    assert merger.due(0.1) == []
    assert merger.due(0.3) == [(("a",), "mine"), (BOTH, "ours")]


def test_a_task_that_catches_up_keeps_its_order_and_is_merged_again():
    merger = LineMerger(2)
    for number in (1, 2):
        merger.add("a", f"line {number}", 0.0)
    assert merger.due(0.3) == [(("a",), "line 1"), (("a",), "line 2")]
    for number in (3, 4):
        merger.add("a", f"line {number}", 0.3)
    for number in (1, 2, 3, 4):
        merger.add("b", f"line {number}", 0.4)
    late = [(("b",), "line 1"), (("b",), "line 2")]
    assert merger.due() == [*late, (BOTH, "line 3"), (BOTH, "line 4")]


def test_what_differs_between_common_lines_stays_between_them():
    merger = LineMerger(2)
    for task in BOTH:
        for text in ("Epoch 1", f"loss of {task}", "Epoch 2", f"end of {task}"):
            merger.add(task, text, 0.0)
    assert merger.due() == [
        (BOTH, "Epoch 1"),
        (("a",), "loss of a"),
        (("b",), "loss of b"),
        (BOTH, "Epoch 2"),
        (("a",), "end of a"),
        (("b",), "end of b"),
    ]


def test_two_tasks_that_print_the_same_in_another_order_keep_theirs():
    merger = LineMerger(2)
    for task, text in [("a", "x"), ("a", "y"), ("b", "y"), ("b", "x")]:
        merger.add(task, text, 0.0)
    assert merger.due() == [(("a",), "x"), (BOTH, "y"), (("b",), "x")]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xyz"), st.sampled_from((0, 1)))))
def test_each_task_s_lines_come_whole_and_in_its_order(events):
    merger, clock, found = LineMerger(3), 0.0, []
    for task, text, passed in events:
        merger.add(task, text, clock)
        clock += 0.2 * passed
        found += merger.due(clock)
    found += merger.due()
    for task in "abc":
        printed = [text for one, text, _ in events if one == task]
        assert [text for tasks, text in found if task in tasks] == printed
