"""Verdicts on recorded numbers of two and four tasks, in milliseconds of a step."""

from dataclasses import replace
from pathlib import Path

import pytest

from mwmagic.model.findings import MemoryForecast, SlowCause, Slowdown, Window
from mwmagic.slowness import judge
from mwmagic.supervisor.training import Growth
from mwmagic.words.slowness import forecast_words, page, slow_words

DECODE = "train.py:14 in decode"


def windows(*each, count=4):
    """Return the same window several times for each task: wall, input, callbacks, CPU, line."""
    return {
        f"worker:{rank}": [_window(8 * at, *numbers) for at in range(1, count + 1)]
        for rank, numbers in enumerate(each)
    }


def _window(first, *numbers):
    wall, waited, calls, cpu, *rest = numbers
    line, faults = (*rest, None, 0.0)[:2] if len(rest) != 1 else (rest[0], 0.0)
    times = [time / 1e3 for time in (wall, waited, calls, cpu)]
    return Window(first, 4, *times, faults, at_input=line, at_main=line)


QUIET = (49, 1.9, 0.2, 37.8)

RECORDED = {
    "undisturbed": ([QUIET, (49, 1.6, 0.2, 38.1)], None),
    "unequal, but too little": ([QUIET, (49, 4.0, 0.2, 39.0)], None),
    "map sleeps": ([QUIET, (101, 49.5, 0.2, 40.7, DECODE)], SlowCause.INPUT_WAITS),
    "map burns CPU": ([QUIET, (98, 28.7, 0.2, 99.3, DECODE)], SlowCause.INPUT_COMPUTES),
    "map burns CPU, ahead of the steps": (
        [(68, 1.7, 0.2, 18.6), (68, 0.8, 0.2, 69.5, DECODE)],
        SlowCause.INPUT_COMPUTES,
    ),
    "busy neighbour": ([QUIET, (81, 3.7, 0.2, 38.6)], None),
    "extra computation": ([QUIET, (76, 4.0, 0.2, 68.5)], SlowCause.MORE_WORK),
    "stopped, which the looks say": ([QUIET, (99, 1.8, 0.2, 46.3)], None),
    "callbacks": ([(63, 0.3, 0.4, 20.4), (63, 0.2, 30.6, 20.9)], SlowCause.CALLBACKS),
    "input and callbacks": ([QUIET, (101, 25.0, 25.0, 40.7)], None),
    "pages from a disk": (
        [QUIET, (101, 49.5, 0.2, 40.7, None, 12.0)],
        SlowCause.PAGING,
    ),
    "of four tasks": ([QUIET, (101, 49.5, 0.2, 40.7), QUIET, QUIET], SlowCause.INPUT_WAITS),
}


@pytest.mark.parametrize("case", RECORDED)
def test_the_task_and_the_cause_are_those_that_were_provoked(case):
    each, cause = RECORDED[case]
    found = judge(windows(*each))
    assert (found and (found.cause, found.task)) == (cause and (cause, "worker:1"))


def test_the_loss_is_what_the_task_waits_longer_than_the_next_one():
    found = judge(windows((101, 1.9, 0.2, 37.8), (101, 49.5, 0.2, 40.7, DECODE)))
    assert (found.when, found.at) == ("always", DECODE)
    assert found.share == pytest.approx(0.47, abs=0.01)
    assert found.without == pytest.approx(0.0534, abs=0.001)


def test_two_windows_say_nothing():
    assert judge(windows(QUIET, (101, 49.5, 0.2, 40.7), count=2)) is None


def test_windows_of_other_steps_are_not_compared():
    found = windows(QUIET, (101, 49.5, 0.2, 40.7))
    found["worker:1"] = [_window(1000 + at, 101, 49.5, 0.2, 40.7) for at in range(4)]
    assert judge(found) is None


def test_one_odd_window_accuses_nobody():
    """Measured in an undisturbed loop, which 4 of 12 times was said to wait for its input."""
    found = {
        "worker:0": [_window(8, 25.8, 0, 0, 20.1), _window(32, 23.2, 0, 0, 18.2)],
        "worker:1": [_window(8, 25.8, 9.5, 0, 21.2), _window(32, 23.3, 0, 0, 20.2)],
    }
    for each in found.values():
        each.append(_window(64, 32.0, 0.5, 0, 24.2))
    assert judge(found) is None


def test_a_task_that_is_slow_in_some_steps_is_said_to_be():
    slow, quiet = (101, 60, 0.2, 40), (49, 2, 0.2, 38)
    found = {
        "worker:0": [_window(at, *quiet) for at in range(8)],
        "worker:1": [_window(at, *(slow if at % 2 else quiet)) for at in range(8)],
    }
    assert judge(found).when == "sometimes"


def test_tasks_that_are_slow_in_turn_are_not_named():
    slow, quiet = (101, 60, 0.2, 40), (101, 2, 0.2, 38)
    found = {
        f"worker:{rank}": [_window(at, *(slow if at % 2 == rank else quiet)) for at in range(8)]
        for rank in (0, 1)
    }
    verdict = judge(found)
    assert (verdict.when, verdict.task) == ("in-turn", None)


def test_all_tasks_may_wait_for_their_input_and_one_alone_too():
    slow, masked = (101, 49.5, 0.2, 40.7, DECODE), (101, 24.5, 0.2, 40.7, DECODE)
    for each in ([slow, masked], [slow]):
        found = judge(windows(*each))
        assert (found.cause, found.task, found.at) == (SlowCause.INPUT_WAITS, None, DECODE)
    short = (14.7, 3.5, 0.1, 9.0)
    assert judge(windows(short, short)) is None, "some milliseconds are TensorFlow's own"


def test_a_task_that_is_found_stopped_is_named_unless_all_are():
    each = windows(QUIET, (99, 1.8, 0.2, 46.3))
    found = judge(each, {"worker:0": 0.0, "worker:1": 0.5})
    assert (found.cause, found.task, found.share) == (SlowCause.STOPPED, "worker:1", 0.5)
    assert judge(each, {"worker:0": 0.5, "worker:1": 0.5}) is None


PARTS = ("input", "callbacks", "cpu", "waits", "queued")
PARTS += ("held", "throttled", "own", "collected", "traced")

SAMPLED = {
    # Two workers of `slowed.py`, the second one slowed on purpose: milliseconds, as measured. The
    # numbers of "neither CPU nor queue" and of links are made up.
    "base": (22, [1, 0, 13, 2.7, 4.7], [1, 0, 14, 2.6, 4.6]),
    "waits, and it computes more": (112, [7, 0, 18, 58, 29], [11, 0, 119, 6, 14]),
    "uneven": (70, [1, 0, 16, 39, 9], [2, 0, 49, 4, 17]),
    "stopped": (37, [1, 0, 15, 15, 1, 3], [1, 0, 15, 2, 1, 19]),
    "neighbour": (248, [6, 0, 22, 143, 75, 3], [9, 0, 20, 34, 173, 13]),
    "neighbour in a lighter case": (37, [1, 0, 15, 12, 6], [1, 0, 14, 7, 15]),
    "throttled": (55, [1, 0, 16, 27, 10], [3, 0, 15, 6, 31, 2, 31]),
    "sleeps in the backward pass": (221, [1, 0, 14, 192, 12], [1, 0, 15, 8, 9, 0, 0, 186]),
    "garbage": (107, [2, 0, 18, 66, 20], [2, 3, 40, 20, 21, 12, 0, 0, 78]),
    "retraces": (38, [1, 0, 14, 14, 10], [1, 11, 23, 6, 6, 0, 0, 0, 0, 4.3]),
    "neither CPU nor queue": (100, [1, 0, 20, 60], [1, 0, 20, 5]),
}

NAMED = {
    "base": None,
    "waits, and it computes more": SlowCause.MORE_WORK,
    "uneven": SlowCause.MORE_WORK,
    "stopped": SlowCause.STOPPED,
    "neighbour": SlowCause.NEIGHBOUR,
    "neighbour in a lighter case": SlowCause.NEIGHBOUR,
    "throttled": SlowCause.THROTTLED,
    "sleeps in the backward pass": SlowCause.CODE_WAITS,
    "garbage": SlowCause.GARBAGE,
    "retraces": SlowCause.TRACING,
    "neither CPU nor queue": SlowCause.UNCLEAR,
}


def sampled(wall, *each, **more):
    """Return four windows of each task, whose wait for the others is known."""
    return {
        f"worker:{rank}": [
            Window(
                8 * at,
                4,
                wall / 1e3,
                **{name: part and part / 1e3 for name, part in zip(PARTS, parts, strict=False)},
                **more.get(f"worker{rank}", {}),
            )
            for at in range(1, 5)
        ]
        for rank, parts in enumerate(each)
    }


@pytest.mark.parametrize("case", SAMPLED)
def test_the_task_that_waits_least_is_named_with_its_cause(case):
    found, cause = judge(sampled(*SAMPLED[case])), NAMED[case]
    assert (found and (found.cause, found.task)) == (cause and (cause, "worker:1"))


@pytest.mark.parametrize("held", [0, 30])
def test_a_task_that_stands_still_for_pages_from_a_disk_is_not_said_to_be_stopped(held):
    parts = [1, 0, 15, 50, 1, 3], [1, 0, 15, 2, 1, held]
    found = judge(sampled(70, *parts, worker1={"faults": 300.0}))
    assert (found.cause, found.task) == (SlowCause.PAGING, "worker:1")
    assert judge(sampled(70, *parts)).cause is not SlowCause.PAGING


def test_python_that_computes_beside_the_step_is_named_with_its_line():
    at = {"worker1": {"at_input": DECODE}}
    found = judge(sampled(112, [7, 0, 18, 58, 29], [11, 0, 119, 6, 14], **at))
    assert (found.cause, found.at) == (SlowCause.INPUT_COMPUTES, DECODE)


def test_a_loop_that_sleeps_is_named_even_if_its_input_is_unknown():
    found = sampled(49, [1, 0, 15, 3], [2, 20, 16, 0, 0, 0, 0, 20], worker1={"at_own": DECODE})
    unknown = {task: [replace(one, waits=None) for one in own] for task, own in found.items()}
    verdict = judge(unknown)
    assert (verdict.cause, verdict.task, verdict.at) == (SlowCause.CODE_WAITS, "worker:1", DECODE)


@pytest.mark.parametrize("tasks", [1, 2])
def test_loops_that_all_sleep_wait_in_their_own_code_and_not_in_callbacks(tasks):
    parts = [2, 20, 16, 0, 0, 0, 0, 20]
    more = {f"worker{rank}": {"at_own": DECODE} for rank in range(tasks)}
    verdict = judge(sampled(49, *[parts] * tasks, **more))
    assert (verdict.cause, verdict.task, verdict.at) == (SlowCause.CODE_WAITS, None, DECODE)
    assert "all tasks wait in their own code" in slow_words(verdict)


def test_tasks_whose_wait_for_the_others_is_unknown_are_not_called_slower():
    found = sampled(100, [1, 0, 20, 60], [1, 0, 20, 5])
    unknown = [replace(one, waits=None) for one in found["worker:1"]]
    assert judge({**found, "worker:1": unknown}) is None


def test_tasks_that_only_wait_for_each_other_send_over_a_slow_link():
    quiet, slow = {"sending": 0.01, "sent": 1e6}, {"sending": 0.07, "sent": 7e6, "peer": "10.0.0.3"}
    parts = [1, 0, 15, 70]
    found = judge(sampled(100, parts, parts, worker0=quiet, worker1=slow))
    assert (found.cause, found.task) == (SlowCause.COLLECTIVE, None)
    others = {f"worker{rank}": {**quiet, "peer": f"10.0.0.{rank}"} for rank in (0, 2)}
    found = judge(sampled(100, parts, parts, parts, worker1=slow, **others))
    assert (found.cause, found.task) == (SlowCause.LINK, "worker:1")
    assert "each step sends 7 MB to 10.0.0.3, at 95 MB a second. Try: " in slow_words(found)
    assert "Without that" not in slow_words(found)


def sending(*each, peers=("10.0.0.2", "10.0.0.3", "10.0.0.1")):
    """Return windows of three tasks on shared CPUs, of which one waits less: seconds, and peers."""
    parts = [1, 0, 30, 200, 50], [1, 0, 30, 190, 40], [1, 0, 70, 70, 140]
    links = {
        f"worker{rank}": {"sending": busy, "sent": 2.8e6, "peer": peer}
        for rank, (busy, peer) in enumerate(zip(each, peers, strict=True))
    }
    return judge(sampled(320, *parts, **links))


def test_a_host_with_a_slow_cable_has_a_slow_link_to_it_and_from_it():
    """Measured on three hosts, where the second one's cable carried 100 Mbit a second."""
    both = sending(0.310, 0.306, 0.044)
    assert (both.cause, both.task, both.peer) == (SlowCause.LINK, "worker:0", "10.0.0.2")
    out = sending(0.140, 0.259, 0.033)
    assert (out.cause, out.task, out.peer) == (SlowCause.LINK, "worker:1", "10.0.0.3")
    for alike in ((0.310, 0.306, 0.290), (0.06, 0.03, 0.02)):
        assert sending(*alike).cause is not SlowCause.LINK
    two_on_a_host = ("10.0.0.1", "10.0.0.3", "10.0.0.1")
    assert sending(0.310, 0.306, 0.044, peers=two_on_a_host).cause is not SlowCause.LINK


def test_many_pages_from_a_disk_are_not_taken_for_more_work():
    """Measured in a control group with 200 MB of memory."""
    parts = [2, 0, 20, 20, 17], [2, 0, 31, 7, 12]
    found = judge(sampled(55, *parts, worker1={"faults": 340.0, "at_input": DECODE}))
    assert (found.cause, found.task) == (SlowCause.PAGING, "worker:1")
    few = judge(sampled(55, *parts, worker1={"faults": 2.0, "at_input": DECODE}))
    assert few.cause is not SlowCause.PAGING


def test_one_window_with_much_cpu_time_is_no_more_work():
    """Measured in an undisturbed loop, which was said to compute its input."""
    found = sampled(25, [1, 0, 15, None], [1, 0, 16, None])
    for rank, cpu in (("worker:0", 0.010), ("worker:1", 0.050)):
        found[rank][0] = replace(found[rank][0], cpu=cpu)
    assert judge(found) is None


def test_input_that_waits_for_a_cpu_is_not_said_to_sleep():
    """Measured while other programs kept two CPUs busy for sixteen."""
    idle, busy = [5, 0, 36, 530, 130], [350, 0, 80, 20, 640]
    at = {"worker1": {"at_input": DECODE}}
    found = judge(sampled(760, idle, busy, **at))
    assert (found.cause, found.task) == (SlowCause.NEIGHBOUR, "worker:1")
    slept = judge(sampled(760, idle, [350, 0, 80, 20, 140], **at))
    assert (slept.cause, slept.task) == (SlowCause.INPUT_WAITS, "worker:1")
    assert judge(sampled(760, busy, busy)) is None


def test_a_task_whose_control_group_is_throttled_is_named_however_its_input_waits():
    """Measured with a fifth of a CPU: the kernel adds up what two CPUs were not allowed."""
    for parts in ([25, 0, 20, 5, 70, 0, 110], [1, 0, 20, None, 70, 0, 110]):
        found = judge(sampled(105, [1, 0, 21, parts[3] and 60, 18], parts))
        assert (found.cause, found.task) == (SlowCause.THROTTLED, "worker:1")
        assert 0.7 < found.share < 0.85


def test_a_verdict_names_the_task_the_reason_the_line_the_gain_and_the_remedy():
    found = Slowdown(SlowCause.INPUT_WAITS, "worker:1", share=0.5, step=0.1, at=DECODE)
    said = slow_words(found)
    assert said.startswith(
        "worker:1 holds up every step: it waits for its input (50% of a step is lost), at "
        "train.py:14 in decode. Without that a step would take 50 ms instead of 100 ms (2.0x). Try:"
    )


def test_every_cause_has_its_words():
    for cause in SlowCause:
        for task in ("worker:1", None):
            assert slow_words(Slowdown(cause, task, share=0.5, step=0.1)).count("Try: ") == 1


def test_the_documentation_has_the_table_of_causes():
    assert page() in (Path(__file__).parents[2] / "docs" / "use" / "slow.md").read_text()


def grown(*megabytes):
    growth = Growth()
    for epoch, size in enumerate(megabytes, 1):
        growth.seen(epoch, size * 2**20)
        growth.seen(epoch, size * 2**20 + 1)  # later looks in the same epoch do not count
    return growth.per_epoch / 2**20


def test_only_memory_that_grows_alike_in_every_epoch_is_said_to_grow():
    assert grown(500, 620, 740, 860, 980, 1100) == pytest.approx(120)
    assert grown(500, 620, 740, 860, 980) == 0  # too few
    assert grown(500, 900, 901, 902, 903, 904) == 0  # it has settled
    assert grown(500, 620, 740, 700, 860, 980) == 0


def test_a_forecast_says_for_how_many_epochs_there_is_memory():
    assert forecast_words(MemoryForecast("worker:1", 120 * 2**20, 9)) == (
        "worker:1 grows by 120 MB an epoch; about 9 epochs are left"
    )
