"""The names of TensorFlow's that free a task, each of which may go with another version."""

from __future__ import annotations

import importlib

import pytest

from mwmagic.model.live import FREED
from mwmagic.recovery.task import collectives as ours
from mwmagic.recovery.task import private, strategies
from mwmagic.recovery.task.collectives import CollectiveEnded, Collectives
from mwmagic.recovery.task.private import KEYS, PRIVATE, lacking

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


@pytest.fixture
def known(monkeypatch):
    """Keep what a test has noted of strategies to itself."""
    monkeypatch.setattr(strategies, "_TRACKED", [])


def test_where_a_name_is_gone_nothing_is_followed_and_that_is_said(monkeypatch, known):
    tensorflow = importlib.import_module("tensorflow")
    strategy = tensorflow.distribute.MultiWorkerMirroredStrategy
    for owner, name in (
        (strategy, "__init__"),
        (tensorflow.errors.UnavailableError, "__init__"),
    ):
        monkeypatch.setattr(owner, name, vars(owner)[name])  # and put it back
    run = strategy.run
    monkeypatch.setattr(private, "PRIVATE", (*PRIVATE, (private.CONTEXT, "Context.gone")))
    strategies.track()
    collectives = Collectives(lambda: None)
    collectives._prepare(tensorflow)
    assert strategy.run is run
    assert not strategies.tracks(), "the repairs count nothing"
    assert collectives.free() == "names"
    monkeypatch.setattr(ours, "context", Device)
    assert collectives.free() == "names"
    assert not ours.rejoin(1)


class Device:
    """TensorFlow's context where there is a device of a kind."""

    def __init__(self, kind="CPU"):
        self.kind = kind

    def list_logical_devices(self, kind):
        return [f"/device:{kind}:0"] if kind == self.kind else []

    def __getattr__(self, name):
        raise AssertionError(f"{name} was used")


def test_on_gpus_collectives_are_neither_ended_nor_joined_again(monkeypatch, known):
    strategies.track()
    keys = importlib.import_module(KEYS[0]).CollectiveKeys()
    strategies._TRACKED[0].note_keys(keys)
    monkeypatch.setattr(ours, "context", lambda: Device("GPU"))
    assert Collectives(lambda: None).free() == "gpu"
    assert not ours.rejoin(1)
    monkeypatch.setattr(ours, "context", Device)
    with pytest.raises(AssertionError, match="abort_collective_ops was used"):
        Collectives(lambda: None).free()


def test_what_comes_from_an_ended_collective_is_known_however_it_is_wrapped():
    collectives = Collectives(lambda: None)
    wrapped = ValueError("fit failed")
    wrapped.__cause__ = RuntimeError(f"Graph execution error: {FREED}")
    assert collectives.is_freed(wrapped)
    assert collectives.is_freed(CollectiveEnded())
    assert not collectives.is_freed(ValueError("bad batch"))


def test_without_collectives_there_is_nothing_to_free():
    assert Collectives(lambda: None).free() is None
