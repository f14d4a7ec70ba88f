"""Lines that several tasks print alike."""

from __future__ import annotations

from mwmagic.client.live.cell import Chorus

BOTH = ("a", "b")


def test_a_line_that_all_print_comes_once():
    chorus = Chorus(2)
    chorus.hear("a", "Epoch 1", 0.0)
    assert chorus.due(0.1) == []
    chorus.hear("b", "Epoch 1", 0.1)
    assert chorus.due(0.1) == [(BOTH, "Epoch 1")]


def test_a_line_that_one_prints_waits_a_moment_for_the_others():
    chorus = Chorus(2)
    chorus.hear("a", "only here", 0.0)
    assert chorus.due(0.2) == []
    assert chorus.due(0.3) == [(("a",), "only here")]
    chorus.hear("b", "only here", 0.4)
    assert chorus.due() == [(("b",), "only here")]


def test_lines_that_differ_in_a_number_are_two():
    chorus = Chorus(2)
    chorus.hear("a", "loss: 0.5", 0.0)
    chorus.hear("b", "loss: nan", 0.0)
    assert chorus.due() == [(("a",), "loss: 0.5"), (("b",), "loss: nan")]


def test_what_a_task_says_twice_comes_twice_and_in_order():
    chorus = Chorus(2)
    for task in BOTH:
        for text in ("x", "y", "x"):
            chorus.hear(task, text, 0.0)
    assert chorus.due(0.0) == [(BOTH, "x"), (BOTH, "y"), (BOTH, "x")]


def test_a_line_does_not_overtake_one_that_waits():
    chorus = Chorus(2)
    chorus.hear("a", "mine", 0.0)
    for task in BOTH:
        chorus.hear(task, "ours", 0.0)
    assert chorus.due(0.1) == []
    assert chorus.due(0.3) == [(("a",), "mine"), (BOTH, "ours")]
