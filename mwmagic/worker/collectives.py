# ruff: noqa: ANN401, SLF001 - TensorFlow has no annotations, and ends collectives privately
"""Frees this task from a collective, and has it join the others' collectives again.

TensorFlow can end all collectives of a process, for good; `enable_collective_ops` makes them work
again if all tasks call it, and if they then number their collectives alike. What is private in
TensorFlow is named in `PRIVATE`. Where one of these names is gone nothing is freed.
"""

from __future__ import annotations

import inspect
import logging
import os
import sys
import time
from contextlib import contextmanager
from hashlib import blake2b
from typing import TYPE_CHECKING, Any
from zlib import crc32

from mwmagic.model import variables
from mwmagic.model.live import FREED, PARTNERS
from mwmagic.repairs import tracked
from mwmagic.repairs.imports import after_import

from . import strategies

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import FrameType

__all__ = ["FREED", "PRIVATE", "Collectives"]

CONTEXT = "tensorflow.python.eager.context"

IN_COLLECTIVE = "tensorflow.python.ops.gen_collective_ops"
"""The module of which a thread runs a function while it is in a collective."""

PRIVATE = (
    (CONTEXT, "Context.abort_collective_ops"),
    (CONTEXT, "Context.enable_collective_ops"),
    (CONTEXT, "Context._collective_ops_server_def"),
    (CONTEXT, "Context.executor"),
    ("tensorflow.python.eager.executor", "Executor.clear_error"),
    ("tensorflow.python.framework.ops", "Operation._is_stateful"),
    ("tensorflow.python.ops.resource_variable_ops", "ResourceVariable"),
    (IN_COLLECTIVE, "collective_reduce_v2"),
    (tracked.VARIABLES[0], tracked.VARIABLES[1]),
    (strategies.MODULE, strategies.NAME),
    (tracked.KEYS[0], tracked.KEYS[1]),
    (tracked.KEYS[0], f"{tracked.KEYS[1]}._instance_key_table"),
    (tracked.KEYS[0], f"{tracked.KEYS[1]}._lock"),
)
"""The names of TensorFlow's that are used here and in `mwmagic.repairs.commit`: module, name."""

UNAVAILABLE_CODE = 14
"""TensorFlow's code for the error of a collective that was ended."""

SKIPPED_KEYS = 100
"""How many numbers TensorFlow leaves out before a strategy's first collective."""

THREAD_SECONDS = 10.0
"""How long a thread may take to leave a collective that was ended."""

THREAD_PAUSE_SECONDS = 0.01
"""The pause between two looks whether it has."""

EPOCH_KEYS = 10_000_000
"""How many numbers of collectives each recovery leaves to the time before it."""

KEYED_EPOCHS = 200
"""After so many recoveries the numbers of collectives start again: they have 32 bits."""

EPOCH_VARIABLES = 1_000_000
"""How many numbers of variables each recovery leaves to the time before it."""

EPOCH_GROUP_KEYS = 10_000
"""The same for the groups of devices of new strategies."""


class CollectiveEnded(BaseException):
    """What a task raises that was freed; not an `Exception`, so that few handlers take it."""


class Collectives:
    """The collectives of this process."""

    def __init__(self, met: Callable[[], None]) -> None:
        self.ended = False
        self._met = met

    def install(self) -> None:
        """Follow what is needed of TensorFlow once it is imported; this imports nothing."""
        tracked.track()
        after_import("tensorflow", self._prepare)
        for keras in ("keras", "tf_keras"):
            after_import(keras, _know_optimizers)

    def _watch(self, cls: Any) -> None:
        """Notice where TensorFlow raises that a collective was ended."""
        original, collectives = cls.__init__, self

        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807 - it takes its place
            original(self, *args, **kwargs)
            collectives.ended = collectives.ended or FREED in str(self)

        cls.__init__ = __init__

    def _prepare(self, tensorflow: Any) -> None:
        if lacking():
            tracked.forget()
        else:
            from mwmagic.repairs import commit

            commit.step_in_loops(tensorflow)
            commit.order_collectives(tensorflow)
        self._watch(tensorflow.errors.UnavailableError)
        self._meet_for(tensorflow.distribute.MultiWorkerMirroredStrategy)

    def _meet_for(self, cls: Any) -> None:
        """Have tasks meet where they make a strategy of a class.

        All but the first replace the collectives of the process, so tasks meet again after that:
        `mwmagic.worker.strategies` says why.
        """
        from mwmagic.repairs.cluster import in_cluster

        original, collectives = cls.__init__, self

        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807 - it takes its place
            elsewhere = args or kwargs.get("cluster_resolver") is not None
            if elsewhere or not in_cluster() or not _has_partners():
                original(self, *args, **kwargs)
                return
            replaces = context() is not None
            collectives._met()
            original(self, *args, **kwargs)
            if replaces:
                collectives._met()

        cls.__init__ = __init__

    def free(self) -> str | None:
        """End all collectives of this process, from any thread."""
        found = context()
        if found is None:
            return _unknown()
        obstacle = _obstacle(found)
        if obstacle is not None:
            return obstacle
        self.ended = False
        found.abort_collective_ops(UNAVAILABLE_CODE, FREED)
        return None

    def is_freed(self, error: BaseException) -> bool:
        """Return whether an error comes from a collective that was ended."""
        seen: set[int] = set()
        one: BaseException | None = error
        while one is not None and id(one) not in seen:
            if isinstance(one, CollectiveEnded) or FREED in _text(one):
                return True
            seen.add(id(one))
            one = one.__cause__ or one.__context__
        return False


def _has_partners() -> bool:
    """Return whether this task is of a type that has collectives in common with others."""
    return os.environ.get(variables.TASK, "").startswith(PARTNERS)


def _know_optimizers(keras: Any) -> None:
    if "tensorflow" in sys.modules:
        from mwmagic.repairs import commit

        commit.know_optimizers(keras)


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException:  # noqa: BLE001 - the user's own `__str__` may raise anything
        return ""


def context() -> Any:
    """Return TensorFlow's context if it has collectives with other processes."""
    module = sys.modules.get(CONTEXT)
    found = module.context() if module is not None else None
    return found if getattr(found, "_collective_ops_server_def", None) else None


def _unknown() -> str | None:
    """Return why collectives cannot be ended of which TensorFlow's context says nothing."""
    if _has_others():
        return "framework"
    return "names" if CONTEXT in sys.modules and lacking() else None


def _obstacle(found: Any) -> str | None:
    """Return why TensorFlow's collectives can neither be ended nor joined again."""
    if lacking():
        return "names"
    if found.list_logical_devices("GPU"):
        return "gpu"  # NCCL's have not been tried
    return None if tracked.tracked_keys() else "program"


def lacking() -> list[str]:
    """Return which of the private names this TensorFlow does not have."""
    return [f"{module}.{name}" for module, name in PRIVATE if not _has(module, name)]


def _has(module: str, name: str) -> bool:
    owner, _, attribute = name.rpartition(".")
    found = sys.modules.get(module)
    if not owner:
        return hasattr(found, attribute)
    cls = getattr(found, owner, None)
    if cls is None or hasattr(cls, attribute):
        return cls is not None
    return attribute in inspect.unwrap(cls.__init__).__code__.co_names  # instances have it


def _has_others() -> bool:
    """Return whether another framework has collectives in this process."""
    jax = sys.modules.get("jax._src.distributed")
    if jax is not None and getattr(jax.global_state, "client", None) is not None:
        return True
    torch = sys.modules.get("torch.distributed")
    return torch is not None and torch.is_available() and torch.is_initialized()


# A recovery; on the main thread.


def rejoin(epoch: int) -> dict[str, int] | None:
    """Make collectives work again, once all tasks have called this with the same number."""
    found = context()
    if found is None or _obstacle(found):
        return None
    _end_all(found)
    found.executor.clear_error()
    with _unwarned():
        found.enable_collective_ops(found._collective_ops_server_def)
    first = SKIPPED_KEYS + epoch % KEYED_EPOCHS * EPOCH_KEYS
    for keys in tracked.tracked_keys():
        with keys._lock:
            for table in keys._instance_key_table.values():
                table.update(dict.fromkeys(table, first))
    tracked.renumber(epoch * EPOCH_VARIABLES)
    strategies.number_groups(epoch * EPOCH_GROUP_KEYS)
    from mwmagic.repairs import commit

    count = commit.counters()
    return {} if count is None else count.read()


@contextmanager
def _unwarned() -> Iterator[None]:
    """Leave out TensorFlow's warning that this may harm tensors made before, which it does not."""
    logger = logging.getLogger("absl")

    def none_of_it(_record: logging.LogRecord) -> bool:
        return False

    logger.addFilter(none_of_it)
    try:
        yield
    finally:
        logger.removeFilter(none_of_it)


def _end_all(found: Any) -> None:
    """End what other threads of this process are in.

    Outside a graph TensorFlow reduces on a thread of its own. An interrupt of the main thread
    leaves that one in the collective, and replacing the collectives then is a crash.
    """
    found.abort_collective_ops(UNAVAILABLE_CODE, FREED)
    until = time.monotonic() + THREAD_SECONDS
    while any(map(_is_collective, sys._current_frames().values())):
        if time.monotonic() > until:
            raise TimeoutError("a thread does not leave its collective")
        time.sleep(THREAD_PAUSE_SECONDS)


def _is_collective(frame: FrameType | None) -> bool:
    """Return whether a thread is in a collective."""
    while frame is not None and frame.f_globals.get("__name__") != IN_COLLECTIVE:
        frame = frame.f_back
    return frame is not None


def settle() -> None:
    """Leave a step that ended in an error which the cell did not let pass."""
    commit = sys.modules.get("mwmagic.repairs.commit")
    if commit is not None:
        commit.settle()


def compare(done: int) -> dict[str, dict[str, str]]:
    """Undo what a step has done that updated no weights, and digest the variables."""
    from mwmagic.repairs import commit

    commit.roll_back(done)
    found: dict[str, dict[str, str]] = {"shared": {}, "means": {}}
    for name, variable in _variables().items():
        kind = "means" if commit.is_mean(variable) else "shared"
        if kind == "means" or not commit.is_local(variable):
            found[kind][name] = _digest(variable.values[0].numpy())
    return found


def _variables() -> dict[str, Any]:
    """Return the variables of strategies by a name that is the same on every task."""
    named = {}
    for number, one in tracked.tracked_variables().items():
        if one.dtype.is_floating or one.dtype.is_integer or one.dtype.is_bool:
            kind = crc32(f"{one.name} {one.shape} {one.dtype.name}".encode())
            named[f"{number}.{kind:x}"] = one
    return named


def _digest(array: Any) -> str:
    return blake2b(array.tobytes(), digest_size=8).hexdigest()


def align(own: bool, done: int, names: Iterable[str], averaged: Iterable[str]) -> None:
    """Take the values of one task, and the means of all tasks' values; call it on all of them."""
    import tensorflow as tf

    from mwmagic.repairs import commit

    known = _variables()
    given, means = [known[name] for name in names], [known[name] for name in averaged]
    _add(given, lambda value: value if own else tf.zeros_like(value))
    _add(means, lambda value: value)
    for one in means:
        one.values[0].assign(one.values[0] / one.distribute_strategy.num_replicas_in_sync)
    commit.settle(done)


def _add(variables: list[Any], part: Callable[[Any], Any]) -> None:
    """Give variables the sum of what each task contributes."""
    import tensorflow as tf

    from mwmagic.repairs.cluster import added

    for strategy in {id(one): one for one in (v.distribute_strategy for v in variables)}.values():
        own = [v.values[0] for v in variables if v.distribute_strategy is strategy]
        sums = added(strategy, [part(one.read_value()) for one in own])
        for one, value in zip(own, sums, strict=True):
            one.assign(tf.cast(value, one.dtype))
