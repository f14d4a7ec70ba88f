"""Which steps are measured: soon enough for a verdict, and not more than may be spent."""

from types import SimpleNamespace

import pytest

from mwmagic.slowness import LEAST_COUNT
from mwmagic.worker import steps
from mwmagic.worker.steps import StepSampler

LOOKS_RATIO = 0.02
"""The part of a CPU that looks take while steps are measured; see `looks`."""


class Looks:
    """Looks at threads that cost as much as they may."""

    waits = queued = held = own = slept = input = 0.0

    def __init__(self, clock, spent):
        self._clock, self._spent = clock, spent
        self._began = clock.now

    @property
    def took(self):
        return LOOKS_RATIO * (self._clock.now - self._began)

    def end(self):
        self._spent.append(self.took)

    def lines(self):
        return {}


@pytest.fixture
def training(monkeypatch):
    """Return what trains for so many steps of so many seconds; it returns windows and costs."""
    clock = SimpleNamespace(now=0.0, thread_time=lambda: 0.0)
    clock.monotonic = lambda: clock.now
    spent, sent = [], []
    monkeypatch.setattr(steps, "time", clock)
    monkeypatch.setattr(steps, "ThreadLooks", lambda: Looks(clock, spent))
    box = SimpleNamespace(put=lambda _, message, __: sent.append((clock.now, message)))

    def trained(count, seconds, executed=1, calls=0.0, **model):
        sampler = StepSampler(box, SimpleNamespace(**model))
        for number in range(executed, count + 1, executed):
            clock.now += seconds * executed
            sampler.calling()
            began, clock.now = clock.now, clock.now + calls
            sampler.called(began)
            sampler.step(number)
        return sent, sum(spent) / clock.now

    return trained


@pytest.mark.parametrize("executed", [1, 5, 16])
@pytest.mark.parametrize("seconds", [0.002, 0.02, 0.1, 0.7])
def test_a_verdict_is_possible_within_30_steps_or_5_seconds_or_5_executions(
    training, executed, seconds
):
    count = max(30, int(5 / seconds), executed * (LEAST_COUNT + 2))
    sent, _ = training(count, seconds, executed)
    assert len(sent) >= LEAST_COUNT


@pytest.mark.parametrize("executed", [1, 5])
@pytest.mark.parametrize("seconds", [0.002, 0.05, 0.7, 5])
def test_long_trainings_are_measured_for_less_than_half_a_percent_of_a_cpu(
    training, seconds, executed
):
    _, cost = training(max(2000, int(100 / seconds)), seconds, executed)
    assert 0 < cost < 0.005


def test_callbacks_that_wait_for_a_step_of_jax_are_not_said_to_take_long(training):
    assert training(100, 0.01, calls=0.05)[0][-1][1]["callbacks"] == pytest.approx(0.05)
    assert training(100, 0.01, calls=0.05, _jax_state_synced=True)[0][-1][1]["callbacks"] == 0
