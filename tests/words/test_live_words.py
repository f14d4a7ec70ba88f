"""What is said of live cells."""

from __future__ import annotations

import pytest

from mwmagic.model.live import Answer, Raised
from mwmagic.words.live import RESET, failed_words, ranks_words, waits_words


@pytest.mark.parametrize(
    ("tasks", "said"),
    [
        (["worker:1"], "1"),
        (["worker:2", "worker:0", "worker:1", "worker:5"], "0-2,5"),
        (["chief:0", "worker:0", "worker:1", "ps:0"], "chief 0, 0-1, ps 0"),
    ],
)
def test_tasks_in_short(tasks, said):
    assert ranks_words(tasks) == said


@pytest.mark.parametrize(
    ("waiting", "raised", "finished", "asking", "said"),
    [
        (
            ["worker:0"],
            [],
            [],
            ["worker:1"],
            "worker:0 waits for worker:1, which is in the debugger",
        ),
        (
            ["worker:0", "worker:2"],
            ["worker:1"],
            [],
            [],
            "worker:0 and worker:2 wait inside the framework, probably for worker:1",
        ),
        (
            ["worker:0"],
            [],
            ["worker:1"],
            [],
            "worker:0 waits inside the framework for worker:1, which has finished the cell",
        ),
    ],
)
def test_which_tasks_wait(waiting, raised, finished, asking, said):
    four = {"waiting": waiting, "raised": raised, "finished": finished, "asking": asking}
    assert waits_words(four) == said


@pytest.mark.parametrize(
    ("message", "unanswered", "said"),
    [
        ("bad\nbatch", [], "worker:1 raised E: bad (In [7], line 3). All variables are kept"),
        ("", [], "worker:1 raised E (In [7], line 3). All variables are kept"),
        (
            "",
            ["worker:0"],
            f"worker:1 raised E (In [7], line 3); worker:0 still waits for it. {RESET}",
        ),
    ],
)
def test_why_a_cell_failed(message, unanswered, said):
    answer = Answer("worker:1", Raised("E", message, 3, ""), {}, 0.0, 0)
    assert failed_words([answer], unanswered, "In [7]") == said
