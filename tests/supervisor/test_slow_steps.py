"""What is collected of a run's tasks leads to one line, and is forgotten with the attempt."""

from types import SimpleNamespace

from mwmagic.logs import Guard
from mwmagic.model.cluster import Task
from mwmagic.model.findings import SlowCause, Window
from mwmagic.record.metrics import Extremes
from mwmagic.supervisor.report import Measurements
from mwmagic.supervisor.training import SlowSteps

TASKS = (Task("worker", 0), Task("worker", 1))


def process(rank, attempt=1, epoch=None, megabytes=0):
    latest = SimpleNamespace(epoch=epoch, epochs=30)
    return SimpleNamespace(
        task=TASKS[rank],
        attempt=attempt,
        usage={"state": "S", "memory": megabytes * 2**20},
        output=SimpleNamespace(training=SimpleNamespace(latest=latest)),
    )


def steps():
    events = []
    return SlowSteps(
        TASKS, lambda *_, **fields: events.append(fields), Guard(events.append)
    ), events


def measured(slow, first, waits, attempt=1):
    for rank, wait in enumerate(waits):
        window = Window(first, 4, wall=0.1, input=wait, cpu=0.04)
        slow.measured(process(rank, attempt), window)


def test_a_cause_is_noted_once_and_again_only_if_it_costs_more():
    slow, events = steps()
    for first in range(10):
        measured(slow, first, (0.001, 0.05 + first / 1000))
    assert (slow.verdict.cause, slow.verdict.task) == (SlowCause.INPUT_WAITS, "worker:1")
    assert len(events) == 1
    for first in range(10, 20):
        measured(slow, first, (0.001, 0.09))
    assert [round(one["share"], 1) for one in events] == [0.5, 0.7, 0.9]


def test_a_new_attempt_begins_without_the_windows_of_the_one_before():
    slow, _ = steps()
    for first in range(5):
        measured(slow, first, (0.001, 0.05))
    before = slow.verdict
    for first in range(5, 7):
        measured(slow, first, (0.001, 0.001), attempt=2)
    assert slow.verdict is before  # two windows say nothing yet
    measured(slow, 7, (0.001, 0.001), attempt=2)
    assert slow.verdict is None


def test_memory_is_foretold_to_run_out_before_the_training_ends():
    slow, _ = steps()
    machine = SimpleNamespace(memory=4000 * 2**20)
    host = SimpleNamespace(tasks=("worker:0", "worker:1"), machine=machine, used=2900 * 2**20)
    for epoch in range(1, 8):
        slow.looked(process(1, epoch=epoch, megabytes=500 + 120 * epoch), [host])
        slow.looked(process(0, epoch=epoch, megabytes=500), [host])
    assert (slow.forecast.task, slow.forecast.epochs) == ("worker:1", 9)


def usages(*looks, attempt=1):
    """Return what is recorded of looks at a process: moment, and what it has used until then."""
    found = []
    measurements = Measurements(SimpleNamespace(metric=lambda **one: found.append(one)), Extremes())
    for moment, usage in looks:
        one = SimpleNamespace(task=TASKS[0], attempt=usage.pop("attempt", 1), usage=usage)
        measurements.used(one, {"memory": 7, "sent": 100 * moment}, moment)
    return found


def test_what_a_task_uses_is_recorded_every_few_seconds_and_later_less_often():
    looks = [(n, {"cpu": 1.5 * n, "memory": n, "written": 10 * n}) for n in range(2000)]
    found = usages(*looks)
    assert found[0]["usage"] == {"cpus": 1.5, "written": 10, "sent": 100, "memory": 2}
    assert [one["seconds"] for one in found[:3]] == [2, 4, 6]
    assert found[-1]["seconds"] - found[-2]["seconds"] == 10
    assert len(found) < 500


def test_what_another_attempt_uses_is_counted_anew_and_gpus_are_put_together():
    gpus = [[90, 2**30], [50, 2**30]]
    found = usages(
        (0, {"cpu": 50.0}),
        (2, {"cpu": 1.0, "attempt": 2}),
        (6, {"cpu": 3.0, "attempt": 2, "gpus": gpus}),
    )
    [one] = found
    assert one["usage"] == {"cpus": 0.5, "sent": 100, "memory": 7, "gpu": 0.7, "gpu_memory": 2**31}


def test_a_process_that_has_just_ended_is_not_recorded_to_use_no_memory():
    assert usages((0, {"cpu": 1.0, "memory": 9}), (3, {"cpu": 2.0, "memory": 0})) == []
