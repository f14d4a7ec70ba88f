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
import time

from mwmagic.repairs.imports import after_import

TYPE_CHECKING = False  # a worker starts without `typing`, `threading` and `queue`
if TYPE_CHECKING:
    import threading
    from collections.abc import Callable
    from queue import SimpleQueue
    from types import ModuleType
    from typing import Any

__all__ = ["WAITING_COUNT", "install", "settled"]

WAITING_COUNT = 8
"""How many iterators may wait to be freed; a program that makes more waits as without this."""

_LOOK_SECONDS = 0.005
"""Time between two looks at whether something is still being freed."""

_OPS = "tensorflow.python.data.ops"
_ITERATORS = {
    f"{_OPS}.iterator_ops": "OwnedIterator",
    f"{_OPS}.multi_device_iterator_ops": "OwnedMultiDeviceIterator",
}
_CACHE = f"{_OPS}.cache_op"


_REAPERS: list[_Reaper] = []
"""What frees in this process."""


def install() -> None:
    """Free iterators in the background.

    Call it before the user's code runs. It imports nothing. Before the interpreter ends, ask
    whether all is `settled`.
    """
    reaper = _Reaper()
    _REAPERS.append(reaper)
    after_import(_CACHE, functools.partial(_notice_files, reaper))
    for module in _ITERATORS:
        after_import(module, functools.partial(_free_later, reaper))


def settled(seconds: float) -> bool:
    """Return whether nothing is being freed in the background, and nothing will be any more.

    A thread that comes back from TensorFlow while the interpreter ends is made to exit there,
    which C++ does not allow: it aborts the process ("FATAL: exception not rethrown").
    """
    deadline = time.monotonic() + seconds
    for reaper in _REAPERS:
        reaper.refuses = True
        while reaper.is_freeing and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)
    return not any(reaper.is_freeing for reaper in _REAPERS)


class _Reaper:
    """Frees what it takes, on one thread that lives as long as the process."""

    def __init__(self) -> None:
        self.refuses = False
        self._thread: threading.Thread | None = None
        self._given = self._done = 0

    @property
    def is_freeing(self) -> bool:
        """Whether it has not freed all that it took; after a fork nothing does."""
        alive = self._thread is not None and self._thread.is_alive()
        return alive and self._done < self._given

    @functools.cached_property
    def _taken(self) -> SimpleQueue[Callable[[], None]]:
        """What is to be called; it may be added to while it is read."""
        from queue import SimpleQueue

        return SimpleQueue()

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
        self._given += 1
        self._taken.put(values.clear)

    def _free(self) -> None:
        while True:
            self._taken.get()()
            self._done += 1


def _notice_files(reaper: _Reaper, module: ModuleType) -> None:
    """Notice a cache in a file: one that is read in part is unlocked only as it is freed."""
    original = module.CacheDataset.__init__

    @functools.wraps(original)
    def init(self: Any, dataset: Any, filename: Any, *args: Any, **options: Any) -> None:
        reaper.refuses |= not isinstance(filename, str) or bool(filename)
        original(self, dataset, filename, *args, **options)

    module.CacheDataset.__init__ = init


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
