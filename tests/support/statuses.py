"""Statuses as they may be found in a record: older, newer or damaged."""

from __future__ import annotations

from dataclasses import fields, is_dataclass

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from mwmagic.diagnosis.table import ENTRIES
from mwmagic.model.findings import (
    Cause,
    Finding,
    Location,
    Position,
    Remark,
    Stall,
    Symptom,
    Whereabouts,
)
from mwmagic.model.machine import HostStatus
from mwmagic.model.status import (
    Importing,
    Reached,
    RunState,
    RunStatus,
    Setback,
    TaskState,
    TaskStatus,
)

KINDS = (
    Cause,
    Finding,
    HostStatus,
    Importing,
    Location,
    Remark,
    Position,
    Reached,
    RunStatus,
    Setback,
    Stall,
    TaskStatus,
)
assert all(is_dataclass(kind) for kind in KINDS)
NAMES = sorted({one.name for kind in KINDS for one in fields(kind)})
IDS = (*RunState, *TaskState, *Symptom, *Whereabouts)
WORDS = [one.value for one in IDS] + ["nan", "worker:0", ""]


RELAXED = settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""How statuses are tried: a machine under load takes its time to invent one."""


def json_values():
    """Return anything that JSON can hold, often with the names and words of a status."""
    numbers = st.integers() | st.floats() | st.sampled_from([0, 1, 2, 10**400])
    leaves = st.none() | st.booleans() | numbers | st.text() | st.sampled_from(WORDS)
    keys = st.sampled_from(NAMES) | st.text()
    anything = st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4),
        max_leaves=8,
    )
    return _status(anything) | anything


def _some(kind, anything, **known):
    """Return a mapping with some fields of a dataclass, each as it should be or not."""
    names = [one.name for one in fields(kind)]
    values = {name: known.get(name, st.nothing()) | anything for name in names}
    return st.fixed_dictionaries({}, optional=values)


def _status(anything):
    position = _some(Position, anything, whereabouts=st.sampled_from(list(Whereabouts)))
    positions = st.lists(position, max_size=2)
    symptoms = st.sampled_from(list(Symptom))
    finding = _some(Finding, anything, symptom=symptoms, positions=positions)
    known = st.sampled_from(list(ENTRIES))
    remark = _some(Remark, anything, known=known, tasks=st.just(["worker:0"]), finding=finding)
    where = _some(Location, anything)
    cause = _some(Cause, anything, known=known, finding=finding, where=where)
    task = _some(
        TaskStatus,
        anything,
        state=st.sampled_from(list(TaskState)),
        finding=finding,
        importing=_some(Importing, anything),
        progress=_some(Reached, anything, metrics=st.dictionaries(st.text(), st.floats())),
    )
    hosts = st.permutations(["worker:0", "worker:1"]).map(
        lambda names: [{"name": "a", "tasks": names[:1]}, {"name": "b", "tasks": names[1:]}]
    )
    host = _some(HostStatus, anything, tasks=st.just(["worker:0"]))
    return _some(
        RunStatus,
        anything,
        hosts=hosts | st.lists(host, max_size=3),
        state=st.sampled_from(list(RunState)),
        tasks=st.dictionaries(st.text(), task, max_size=3)
        | st.fixed_dictionaries({"worker:0": task, "worker:1": task}),
        cause=cause,
        stall=_some(Stall, anything, why=remark, positions=positions),
        setbacks=st.lists(_some(Setback, anything, cause=cause), max_size=2),
        remarks=st.lists(remark, max_size=2),
    )
