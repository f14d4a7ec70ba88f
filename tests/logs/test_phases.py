import pytest
from hypothesis import given
from hypothesis import strategies as st

from mwmagic.logs.progress import Phase, Phases, Progress
from mwmagic.logs.terminal import shown


def passed(data):
    """Return the distinct phases of a log, in their order."""
    phases, progress = Phases(), Progress()
    found = []
    for line in shown(data, ansi=False):
        phase = phases.feed(line) if progress.line(line) is None else phases.train()
        if not found or found[-1] != phase:
            found.append(phase)
    return found


def words(data):
    return list(dict.fromkeys(phase.name for phase in passed(data)))


def test_a_leader_alone_waits_for_the_other(sample):
    last = passed(sample("alone-0"))[-1]
    assert last == Phase(server=True, joined=True, missing=1, waiting=("worker:1",))
    assert last.name == "waiting"


def test_another_worker_alone_only_listens(sample):
    assert passed(sample("alone-1"))[-1] == Phase(server=True)


def test_a_leader_of_three_names_the_missing_tasks(sample):
    phases = passed(sample("three-0"))
    waiting = list(dict.fromkeys((phase.missing, phase.waiting) for phase in phases))
    assert waiting == [
        (0, ()),
        (2, ()),
        (2, ("worker:1",)),
        (2, ("worker:1", "worker:2")),
        (2, ("worker:2",)),
        (1, ()),
        (1, ("worker:2",)),
    ]
    assert words(sample("three-0")) == ["starting", "server", "waiting", "connected", "training"]
    assert phases[-1] == Phase(server=True, joined=True, connected=True, training=True)


def test_another_worker_of_three_shows_less(sample):
    phases = passed(sample("three-1"))
    assert words(sample("three-1")) == ["starting", "server", "training"]
    assert phases[-2] == Phase(server=True, joined=True)
    assert phases[-1].connected


def test_jax(sample):
    assert words(sample("jax-alone-0")) == ["starting", "server"]
    assert words(sample("jax-0")) == ["starting", "server", "connected", "training"]
    assert words(sample("jax-1")) == ["starting", "connected", "training"]


@pytest.mark.parametrize(
    "name", ["tensorflow-2.16-0", "legacy-two-workers-0", "lost-peer-0", "unpatched-keras3-1"]
)
def test_trainings_and_failures(sample, name):
    trains = name in {"tensorflow-2.16-0", "legacy-two-workers-0"}
    assert passed(sample(name))[-1].training is trains


def test_gloo_counts_when_it_reached_all_others():
    phases = Phases()
    gloo = "step[Gloo] Rank 3 is connected to {} peer ranks. "
    gloo += "Expected number of connected peer ranks is : 7"
    assert not phases.feed(gloo.format(5)).connected
    assert phases.feed(gloo.format(7)).connected


def test_progress_on_a_line_that_goes_on():
    phases = Phases()
    assert phases.train().name == "training"
    assert phases.feed("anything").training


def test_a_users_print_is_not_read_as_a_phase():
    phases = Phases()
    for line in ["Started server with target: x", "Waiting for 1/2 tasks to connect.", "connected"]:
        assert phases.feed(line) == Phase()


@given(st.lists(st.text()))
def test_garbage_never_raises(lines):
    phases = Phases()
    for line in lines:
        phases.feed(line)
