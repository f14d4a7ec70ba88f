"""How iterators over a `tf.data` pipeline are freed."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest
from processes import eventually

from mwmagic.worker import iterators

NAME = "tensorflow.python.data.ops.iterator_ops"
CACHE = "tensorflow.python.data.ops.cache_op"


class Resource:
    """What takes long to free; it notes which thread frees it."""

    def __init__(self):
        self.woken, self.by = threading.Event(), []

    def __del__(self):
        assert self.woken.wait(60)
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
    iterators.install()
    return made


def test_a_program_that_drops_an_iterator_goes_on(modules):
    resource = Resource()
    woken, by = resource.woken, resource.by
    iterator = modules[NAME].OwnedIterator(resource)
    del resource, iterator
    assert by == []
    woken.set()
    eventually(lambda: by, "the resource is freed")


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


PIPELINE = """
import threading
from mwmagic.worker import iterators
iterators.install()
import tensorflow as tf
started = []
start = threading.Thread.start
threading.Thread.start = lambda self: (started.append(self.name), start(self))
strategy = tf.distribute.MirroredStrategy(["CPU:0"])
data = tf.data.Dataset.range(8).batch(2)
for made in (data, strategy.experimental_distribute_dataset(data)):
    started.clear()
    assert len(list(iter(made))) == 4
    assert "mwmagic-iterator" in started, started
"""


@pytest.mark.slow
@pytest.mark.tensorflow
def test_tensorflows_own_iterators_are_freed_so():
    env = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    subprocess.run([sys.executable, "-c", PIPELINE], env=env, check=True)
