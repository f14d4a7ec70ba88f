"""Reading a metric's state on one worker."""

from __future__ import annotations

import threading
import types

from mwmagic.worker import watch


def test_a_sum_over_workers_is_not_asked_for():
    def ask(_variable, name):
        raise AssertionError(f"{name} is looked up in a reduction that no other worker joins")

    module = "tensorflow.python.distribute.values"
    variable = type("SyncOnRead", (), {"__module__": module, "values": (1, 2), "__getattr__": ask})
    assert watch._local_sum(variable()) == 3.0


class Later:
    """A step that a ClusterCoordinator has scheduled: its logs, once it has run."""

    def __init__(self, logs):
        self._logs, self._status_available_event = logs, threading.Event()

    def run(self):
        self._status_available_event.set()

    def fetch(self):
        return self._logs


class Outbox(list):
    open = False
    __hash__ = object.__hash__

    def put(self, _key, message, metrics):
        self.append((message.get("epoch"), message.get("step"), metrics, "final" in message))


def test_an_epoch_whose_steps_were_all_scheduled_before_one_ran_shows_its_first(monkeypatch):
    sent = Outbox()
    monkeypatch.setattr(watch, "outbox", lambda: sent)
    callbacks = types.SimpleNamespace(model=None, params={"epochs": 1, "steps": 3})
    one = watch.Fits(type("Mean", (), {"result": None})).watch(callbacks)
    steps = [Later({"loss": float(number)}) for number in range(3)]
    one.train_begin()
    one.epoch_begin(0)
    for number, step in enumerate(steps):
        one.batch_end(number, step)
    assert [entry for entry in sent if entry[2]] == []
    for step in steps:
        step.run()
    one.epoch_end(0, {"loss": 2.0})
    assert [entry for entry in sent if entry[2]] == [
        (1, 1, {"loss": 0.0}, False),
        (1, 3, {"loss": 2.0}, True),
    ]
