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
import sys

from mwmagic.repairs.imports import after_import

TYPE_CHECKING = False  # a worker starts without `typing`, `threading` and `queue`
if TYPE_CHECKING:
    import threading
    from collections.abc import Callable
    from queue import SimpleQueue
    from types import ModuleType
    from typing import Any

__all__ = ["WAITING_COUNT", "install"]

WAITING_COUNT = 8
"""How many iterators may wait to be freed; a program that makes more waits as without this."""

_OPS = "tensorflow.python.data.ops"
_ITERATORS = {
    f"{_OPS}.iterator_ops": "OwnedIterator",
    f"{_OPS}.multi_device_iterator_ops": "OwnedMultiDeviceIterator",
}
_CACHE = f"{_OPS}.cache_op"
_PROFILER = "tensorflow.python.profiler.profiler_v2"


def install() -> None:
    """Free iterators in the background.

    Call it before the user's code runs. It imports nothing.
    """
    after_import(_CACHE, lambda module: _notice_files(_reaper(), module))
    after_import(_PROFILER, lambda module: _finish_first(_reaper(), module))
    for name in _ITERATORS:
        after_import(name, lambda module: _free_later(_reaper(), module))


class _Reaper:
    """Frees what it takes, on one thread that lives as long as the process."""

    def __init__(self) -> None:
        from queue import SimpleQueue

        self.refuses = False
        self._taken: SimpleQueue[Callable[[], None]] = SimpleQueue()  # put to while it is read
        self._thread: threading.Thread | None = None

    def accepts(self) -> bool:
        """Return whether it takes anything now."""
        import threading

        if self.refuses or self._taken.qsize() >= WAITING_COUNT or sys.is_finalizing():
            return False  # a thread that starts as the interpreter ends never says that it has
        if self._thread is None or not self._thread.is_alive():  # also after a fork
            self._thread = threading.Thread(target=self._free, name="mwmagic-reaper", daemon=True)
            try:
                self._thread.start()
            except RuntimeError:  # there are too many threads
                return False
        return True

    def take(self, values: list[Any]) -> None:
        """Free what a list holds."""
        self._taken.put(values.clear)

    def finish(self) -> None:
        """Wait until everything taken is freed."""
        import threading

        if self._thread is not None and self._thread.is_alive():
            freed = threading.Event()
            self._taken.put(freed.set)
            freed.wait()

    def _free(self) -> None:
        while True:
            self._taken.get()()


@functools.cache
def _reaper() -> _Reaper:
    """Return the one that this process has once TensorFlow is imported."""
    return _Reaper()


def _notice_files(reaper: _Reaper, module: ModuleType) -> None:
    """Notice a cache in a file: one that is read in part is unlocked only as it is freed."""
    original = module.CacheDataset.__init__

    @functools.wraps(original)
    def init(self: Any, dataset: Any, filename: Any, *args: Any, **options: Any) -> None:
        reaper.refuses |= not isinstance(filename, str) or bool(filename)
        original(self, dataset, filename, *args, **options)

    module.CacheDataset.__init__ = init


def _finish_first(reaper: _Reaper, module: ModuleType) -> None:
    """Free everything before a profile ends: TensorFlow may crash if threads end meanwhile."""
    original = module.stop

    @functools.wraps(original)
    def stop(*args: Any, **options: Any) -> None:
        reaper.finish()
        original(*args, **options)

    vars(module)["stop"] = stop


def _free_later(reaper: _Reaper, module: ModuleType) -> None:
    """Free what an iterator holds on another thread."""
    owner = getattr(module, _ITERATORS[module.__name__], None)
    if owner is None or hasattr(owner, "__del__"):  # another version, with a way of its own
        return

    def free(self: Any) -> None:
        if reaper.accepts():
            reaper.take(list(vars(self).values()))
            vars(self).clear()

    owner.__del__ = free
