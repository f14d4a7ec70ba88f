"""What is said of live cells."""

from __future__ import annotations

import pytest

from mwmagic.model.live import Answer, Raised
from mwmagic.words.live import (
    RESET,
    failed_words,
    freed_words,
    ranks_words,
    recovered_words,
    stopped_words,
    waits_words,
)


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
    three = {"waiting": waiting, "raised": raised, "finished": finished, "asking": asking}
    because = f"{said}; on GPUs collectives are not ended"
    assert waits_words({**three, "why": "gpu"}) == because
    assert waits_words({**three, "why": None}) == said


@pytest.mark.parametrize(
    ("raised", "finished", "absent", "said"),
    [
        (["worker:1"], [], [], "worker:0 waited for it in a collective: freed after 0.3 s"),
        (["worker:1", "worker:2"], [], [], "worker:0 waited for them in a collective: freed after"),
        ([], ["worker:1"], [], "worker:0 waited in a collective for worker:1, which has finished"),
        ([], [], ["worker:1"], "in a collective for worker:1, which has not run the cell: freed"),
        ([], [], [], "worker:0 waited in a collective: freed after 0.3 s"),
    ],
)
def test_which_tasks_were_freed(raised, finished, absent, said):
    four = {"freed": ["worker:0"], "raised": raised, "finished": finished, "absent": absent}
    assert said in freed_words({**four, "seconds": 0.31})


RECOVERED = {
    "outcome": "aligned",
    "root": "worker:1",
    "differed": 1,
    "variables": 14,
    "counted": True,
    "cut": False,
}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, "collectives work again; all have worker:1's state (1 of 14 variables differed)"),
        (
            {"differed": 0},
            "collectives work again; all tasks have the same state (14 variables compared)",
        ),
        ({"variables": 0}, "collectives work again"),
        ({"outcome": "failed"}, f"collectives could not be made to work again. {RESET}"),
    ],
)
def test_what_a_recovery_came_to(changed, said):
    assert recovered_words({**RECOVERED, **changed}) == said


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"outcome": "torn"}, "the model's state is lost. Build it again, or load weights"),
        (
            {"cut": True},
            "The last step made only some of its updates of the weights",
        ),
        ({"counted": False}, "It may not be that of a whole step"),
    ],
)
def test_what_a_recovery_could_not_keep(changed, said):
    assert said in recovered_words({**RECOVERED, **changed})


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


def test_why_a_cell_failed_in_which_none_raised_of_itself():
    freed = Answer("worker:0", Raised("E", "ended", 3, ""), {}, 0.0, 0, freed=True)
    own = Answer("worker:1", Raised("E", "bad", 3, ""), {}, 0.0, 0)
    assert failed_words([freed, own], [], "In [7]").startswith("worker:1 raised E: bad (In [7]")
    assert failed_words([freed], [], "In [7]") == (
        "worker:0 waited in a collective for ever. All variables are kept"
    )


@pytest.mark.parametrize(("away", "where"), [(None, ""), ("node2", " on node2")])
def test_a_task_that_is_stopped_and_how_it_goes_on(away, where):
    assert stopped_words({"task": "worker:1", "pid": 7, "away": away}) == (
        f"worker:1 is stopped by a signal (SIGSTOP); `kill -CONT 7`{where} resumes it"
    )
