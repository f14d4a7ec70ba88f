"""Lines that several tasks print alike."""

from __future__ import annotations

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
