"""The names of TensorFlow's that free a task, each of which may go with another version."""

from __future__ import annotations

import importlib

import pytest

from mwmagic.worker.collectives import FREED, PRIVATE, CollectiveEnded, Collectives, lacking

pytestmark = [pytest.mark.slow, pytest.mark.tensorflow]


@pytest.fixture(scope="module", autouse=True)
def tensorflow():
    for module, _ in PRIVATE:
        importlib.import_module(module)


@pytest.mark.parametrize(("module", "name"), PRIVATE, ids=[name for _, name in PRIVATE])
def test_tensorflow_has(module, name):
    assert f"{module}.{name}" not in lacking()


def test_a_name_that_is_gone_is_noticed(monkeypatch):
    context = importlib.import_module(PRIVATE[0][0])
    monkeypatch.delattr(context.Context, "abort_collective_ops")
    assert lacking() == [f"{PRIVATE[0][0]}.Context.abort_collective_ops"]


def test_what_comes_from_an_ended_collective_is_known_however_it_is_wrapped():
    collectives = Collectives(lambda: None)
    wrapped = ValueError("fit failed")
    wrapped.__cause__ = RuntimeError(f"Graph execution error: {FREED}")
    assert collectives.is_freed(wrapped)
    assert collectives.is_freed(CollectiveEnded())
    assert not collectives.is_freed(ValueError("bad batch"))


def test_without_collectives_there_is_nothing_to_free():
    assert Collectives(lambda: None).free() is None
