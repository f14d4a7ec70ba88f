# ruff: noqa: ANN401 - TensorFlow has no annotations
"""Frees this task from a collective, and has it join the others' collectives again.

TensorFlow can end all collectives of a process, for good; `enable_collective_ops` makes them work
again if all tasks call it, and if they then number their collectives alike. If a private name of
TensorFlow's is gone, nothing is freed.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from mwmagic.hooks import after_import
from mwmagic.model import variables
from mwmagic.model.live import FREED, PARTNERS

from . import strategies
from .private import (
    CONTEXT,
    IN_COLLECTIVE,
    context,
    lacking,
    number_groups,
    number_keys,
    restart_collectives,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

__all__ = ["CollectiveEnded", "Collectives", "rejoin"]

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
        strategies.track()
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
            strategies.forget()
        else:
            from . import updates

            updates.step_in_loops(tensorflow)
            updates.order_collectives(tensorflow)
        self._watch(tensorflow.errors.UnavailableError)
        self._meet_for(tensorflow.distribute.MultiWorkerMirroredStrategy)

    def _meet_for(self, cls: Any) -> None:
        """Have tasks meet where they make a strategy of a class.

        All but the first replace the collectives of the process, so tasks meet again after that:
        `mwmagic.recovery.task.strategies` says why.
        """
        from mwmagic.hooks import in_cluster

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
        from . import updates

        updates.know_optimizers(keras)


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException:  # noqa: BLE001 - the user's own `__str__` may raise anything
        return ""


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
    return None if strategies.tracked_keys() else "program"


def _has_others() -> bool:
    """Return whether another framework has collectives in this process."""
    jax = sys.modules.get("jax._src.distributed")
    if jax is not None and getattr(jax.global_state, "client", None) is not None:
        return True
    torch = sys.modules.get("torch.distributed")
    return torch is not None and torch.is_available() and torch.is_initialized()


# A recovery; on the main thread.


def rejoin(epoch: int) -> bool:
    """Make collectives work again, once all tasks have called this with the same number.

    Returns whether this task has any.
    """
    found = context()
    if found is None or _obstacle(found):
        return False
    _end_all(found)
    with _unwarned():
        restart_collectives(found)
    first = SKIPPED_KEYS + epoch % KEYED_EPOCHS * EPOCH_KEYS
    for keys in strategies.tracked_keys():
        number_keys(keys, first)
    strategies.renumber(epoch * EPOCH_VARIABLES)
    number_groups(epoch * EPOCH_GROUP_KEYS)
    return True


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
    while any(map(_is_collective, sys._current_frames().values())):  # noqa: SLF001 - as `faulthandler` does
        if time.monotonic() > until:
            raise TimeoutError("a thread does not leave its collective")
        time.sleep(THREAD_PAUSE_SECONDS)


def _is_collective(frame: FrameType | None) -> bool:
    """Return whether a thread is in a collective."""
    while frame is not None and frame.f_globals.get("__name__") != IN_COLLECTIVE:
        frame = frame.f_back
    return frame is not None
