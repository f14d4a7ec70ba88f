# ruff: noqa: ANN401 - TensorFlow has no annotations
"""TensorFlow's runtime in a worker: when it notices a lost peer, and how it ends.

The tasks of a MultiWorkerMirroredStrategy send heartbeats to the coordination
service in the first of them, the leader, which gives up on a silent task after
ten seconds. TensorFlow has a setting for that, but its strategy does not use it.
The others report an error if the leader ends before they do, even after a
successful training.

An autotuned `tf.data` pipeline has a thread that sleeps for up to a minute between looks. Freeing
its iterator wakes it, and waits for it to end; but TensorFlow marks the pipeline as cancelled only
after it has woken the thread, which often finds no mark yet and sleeps on. A distributed dataset
is freed at the end of every epoch, and most of the time waits again as long as it has lived
(tensorflow/core/framework/model.cc, `Model::OptimizeLoop`; cancellation.cc, `StartCancel`). So
iterators are freed in the background.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import time

from mwmagic.hooks import after_import

TYPE_CHECKING = False  # a worker starts without `typing`, `threading` and `queue`
if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterable
    from queue import SimpleQueue
    from types import ModuleType
    from typing import Any

__all__ = [
    "LEAVE_SECONDS",
    "WAITING_COUNT",
    "configure_heartbeat",
    "free_iterators_later",
    "outlast_sleep",
    "settled",
    "shorten_heartbeat",
    "take_leave",
]

LEAVE_SECONDS = 5.0
"""Time limit for a leader's wait for the others to end."""

ASLEEP_SECONDS = 86_400.0
"""How long a machine may sleep whose session continues."""

_least_seconds: float = 0.0
"""How long a heartbeat timeout is at least."""

_CONTEXT = "tensorflow.python.eager.context"
_TIMEOUT = "heartbeat_timeout_in_ms"
_EXIT_SECONDS = 0.1  # from a task's farewell to its end, on a busy machine


def shorten_heartbeat(seconds: float) -> None:
    """Set a shorter heartbeat timeout as soon as TensorFlow is imported.

    Call it before a strategy is made. It imports nothing.
    """
    after_import(_CONTEXT, lambda context: configure_heartbeat(seconds, context))


def configure_heartbeat(seconds: float, context: ModuleType) -> None:
    """Give TensorFlow's strategy a heartbeat timeout, unless it sets one.

    Which tasks take part, and which of them leads, stays TensorFlow's own
    choice, and without a strategy nothing is configured: parameter servers,
    evaluators and work on one machine are left as they are. So is a TensorFlow
    that does not have the setting.
    """
    import inspect

    configure = getattr(context.Context, "configure_coordination_service", None)
    if configure is None or _TIMEOUT not in inspect.signature(configure).parameters:
        return

    @functools.wraps(configure)
    def with_timeout(self: Any, *args: Any, **options: Any) -> Any:
        if _of_workers(options.get("coordinated_jobs") or ()):
            options.setdefault(_TIMEOUT, round(max(seconds, _least_seconds) * 1000))
        return configure(self, *args, **options)

    context.Context.configure_coordination_service = with_timeout


def outlast_sleep() -> None:
    """Have strategies that are made from now on not give each other up while a machine sleeps.

    In a session, mwmagic itself notices a process that ends or is stopped, and a machine that does
    not answer.
    """
    global _least_seconds  # noqa: PLW0603
    _least_seconds = ASLEEP_SECONDS


def take_leave() -> None:
    """Let the leader end after the others; call this last in a process that succeeded.

    The others tell the leader through the coordination service that they are
    about to end. It returns at once where TensorFlow has no such service, and
    after `LEAVE_SECONDS` if a task keeps working.
    """
    module = sys.modules.get(_CONTEXT)
    context = module.context_safe() if module else None
    if not _of_workers(_jobs(context)):
        return
    import threading

    # The service may be gone, and some versions of TensorFlow then wait for it forever.
    farewell = threading.Thread(target=_bid_farewell, args=(context,), daemon=True)
    farewell.start()
    farewell.join(LEAVE_SECONDS)


def _of_workers(jobs: Iterable[Any]) -> bool:
    """Return whether these are the jobs of a strategy whose tasks are all alike."""
    names = {job.name for job in jobs}
    return bool(names) and names <= {"chief", "worker"}


def _jobs(context: Any) -> tuple[Any, ...]:
    """Return the jobs that TensorFlow's coordination service knows, if it runs."""
    service = context.coordination_service if context else None
    return tuple(service.coordinated_job_list) if service else ()


def _bid_farewell(context: Any) -> None:
    """Say goodbye to the leader; the leader waits for that from all the others."""
    # An earlier failure, or another version's interface: this process ends in any case.
    with contextlib.suppress(Exception):
        leader = context.coordination_service.service_leader
        own = context.host_address_space()
        if own != leader:
            context.set_config_key_value(_farewell(own), "1")
            return
        for task in _tasks(_jobs(context)) - {leader}:
            context.get_config_key_value(_farewell(task))
        time.sleep(_EXIT_SECONDS)


def _tasks(jobs: Iterable[Any]) -> set[str]:
    """Name all tasks as TensorFlow does."""
    return {f"/job:{job.name}/replica:0/task:{i}" for job in jobs for i in range(job.num_tasks)}


def _farewell(task: str) -> str:
    return f"mwmagic/farewell{task}"


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


def free_iterators_later() -> None:
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
