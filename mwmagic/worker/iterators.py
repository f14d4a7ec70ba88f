"""How a `tf.data` iterator is freed without a wait.

An autotuned pipeline has a thread that sleeps for up to a minute between looks. Freeing the
iterator wakes it, and waits for it to end; but TensorFlow marks the pipeline as cancelled only
after it has woken the thread, which often finds no mark yet and sleeps on. A distributed dataset
is freed at the end of every epoch, and most of the time waits again as long as it has lived
(tensorflow/core/framework/model.cc, `Model::OptimizeLoop`; cancellation.cc, `StartCancel`).
"""

# ruff: noqa: ANN401 - TensorFlow has no annotations

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING, Any

from mwmagic.repairs.imports import after_import

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["install"]

_OPS = "tensorflow.python.data.ops"
_ITERATORS = {
    f"{_OPS}.iterator_ops": "OwnedIterator",
    f"{_OPS}.multi_device_iterator_ops": "OwnedMultiDeviceIterator",
}
_CACHE = f"{_OPS}.cache_op"


def install() -> None:
    """Free iterators in the background.

    Call it before the user's code runs. It imports nothing.
    """
    caching = threading.Event()
    after_import(_CACHE, functools.partial(_notice_files, caching))
    for module in _ITERATORS:
        after_import(module, functools.partial(_free_in_background, caching))


def _notice_files(caching: threading.Event, module: ModuleType) -> None:
    """Notice a cache in a file: one that is read in part is unlocked only as it is freed."""
    original = module.CacheDataset.__init__

    @functools.wraps(original)
    def init(self: Any, dataset: Any, filename: Any, *args: Any, **options: Any) -> None:
        if not isinstance(filename, str) or filename:
            caching.set()
        original(self, dataset, filename, *args, **options)

    module.CacheDataset.__init__ = init


def _free_in_background(caching: threading.Event, module: ModuleType) -> None:
    owner = getattr(module, _ITERATORS[module.__name__], None)
    if owner is None or hasattr(owner, "__del__"):  # another version, with a way of its own
        return

    def free(self: Any) -> None:
        if caching.is_set():
            return
        held = list(vars(self).values())
        vars(self).clear()
        thread = threading.Thread(target=held.clear, name="mwmagic-iterator", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the interpreter ends, or there are too many threads
            held.clear()

    owner.__del__ = free
