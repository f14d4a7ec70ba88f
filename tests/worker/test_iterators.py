"""How iterators over a `tf.data` pipeline are freed."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest
from processes import eventually

from mwmagic.worker import runtime

NAME = "tensorflow.python.data.ops.iterator_ops"
CACHE = "tensorflow.python.data.ops.cache_op"


class Resource:
    """What takes long to free; it notes which thread frees it."""

    def __init__(self):
        self.woken, self.by = threading.Event(), []

    def __del__(self):
        assert self.woken.wait(120)
        self.by.append(threading.current_thread())


@pytest.fixture
def modules(monkeypatch):
    """Give tests a pipeline's classes of their own, as TensorFlow's modules have them."""

    class OwnedIterator:
        def __init__(self, resource):
            self._iterator_resource = resource

    class CacheDataset:
        def __init__(self, dataset, filename, name=None):
            self.filename = filename

    made = {}
    for name, owned in ((NAME, OwnedIterator), (CACHE, CacheDataset)):
        made[name] = type(sys)(name)
        setattr(made[name], owned.__name__, owned)
        monkeypatch.setitem(sys.modules, name, made[name])
    other = "tensorflow.python.data.ops.multi_device_iterator_ops"
    monkeypatch.setitem(sys.modules, other, type(sys)(other))  # a version without that class
    runtime.free_iterators_later()
    return made


def test_a_program_that_drops_an_iterator_goes_on(modules):
    resource = Resource()
    woken, by = resource.woken, resource.by
    iterator = modules[NAME].OwnedIterator(resource)
    del resource, iterator
    assert by == []
    assert not runtime.settled(0.01), "it is being freed"
    woken.set()
    assert runtime.settled(60)
    assert by


@pytest.mark.parametrize(("filename", "at_once"), [("", False), ("cache", True)])
def test_a_cache_in_a_file_is_unlocked_at_once(modules, filename, at_once):
    assert modules[CACHE].CacheDataset(None, filename).filename == filename
    resource = Resource()
    by = resource.by
    resource.woken.set()
    iterator = modules[NAME].OwnedIterator(resource)
    del resource, iterator
    eventually(lambda: by, "the resource is freed")
    assert (by == [threading.current_thread()]) == at_once


def test_a_program_that_makes_many_iterators_waits_for_some(modules):
    resources = [Resource() for _ in range(runtime.WAITING_COUNT + 2)]
    first, *others = [one.woken for one in resources]
    by = [one.by for one in resources]
    owned = [modules[NAME].OwnedIterator(one) for one in resources]
    for woken in others:
        woken.set()
    del resources
    while owned:
        owned.pop(0)  # the first keeps the others waiting
    assert by[-1] == [threading.current_thread()]
    first.set()


PIPELINE = """
import os
from mwmagic.worker import runtime
taken = []
take = runtime._Reaper.take
runtime._Reaper.take = lambda self, values: (taken.append(len(values)), take(self, values))
runtime.free_iterators_later()
import tensorflow as tf
strategy = tf.distribute.MirroredStrategy(["CPU:0"])
data = tf.data.Dataset.range(8).batch(2)
for made in (data, strategy.experimental_distribute_dataset(data)):
    taken.clear()
    assert len(list(iter(made))) == 4
    assert taken
if not runtime.settled(0.5):  # as a worker ends
    os._exit(0)
"""


FORK = """
import os, types, sys
from mwmagic.worker import runtime
module = sys.modules["tensorflow.python.data.ops.iterator_ops"] = types.ModuleType(
    "tensorflow.python.data.ops.iterator_ops"
)
exec("class OwnedIterator: pass", vars(module))
runtime.free_iterators_later()
module.OwnedIterator()
kept = module.OwnedIterator()  # until the interpreter ends
if child := os.fork():
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
else:
    module.OwnedIterator()
"""


@pytest.mark.slow
@pytest.mark.parametrize("fork", [True, False], ids=["fork", "alone"])
def test_a_process_ends_with_iterators_left(fork):
    program = FORK if fork else FORK.partition("if child")[0]
    subprocess.run([sys.executable, "-c", program], timeout=120, check=True)


@pytest.mark.slow
@pytest.mark.tensorflow
def test_tensorflows_own_iterators_are_freed_so():
    env = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    subprocess.run([sys.executable, "-c", PIPELINE], env=env, check=True)
