"""How a program makes one strategy of several workers after another.

A strategy replaces all collectives of its process. A task that goes on at once may reach those that
another task is about to replace, where it is forgotten: then both wait forever, or tensors of two
steps meet. And each strategy numbers its collectives like the one before it, so that two cannot be
used in turn.
"""

# ruff: noqa: ANN401, SLF001 - TensorFlow has no annotations, and numbers collectives privately

from __future__ import annotations

import functools
import sys
import time
from itertools import count

from mwmagic.repairs.imports import after_import

TYPE_CHECKING = False  # a worker starts without `typing`
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

__all__ = ["STRATEGY_KEYS", "install"]

STRATEGY_KEYS = 10
"""How many numbers each strategy has for groups of devices; it uses two of them."""

KEY_SECONDS = 0.001
"""How long one look for another task may take. Python's other threads stand still in it."""

KEY_PAUSE_SECONDS = 0.01
"""The pause between two looks."""

_CONTEXT = "tensorflow.python.eager.context"
_STRATEGY = "tensorflow.python.distribute.collective_all_reduce_strategy"


def install() -> None:
    """Have tasks meet after they made another strategy, and tell its collectives from the others'.

    Call it before the user's code runs. It imports nothing. Live cells meet over a line of their
    own instead (`mwmagic.worker.collectives`), since nothing frees a task that waits here.
    """
    after_import(_CONTEXT, _meet)


def _meet(module: ModuleType) -> None:
    original, numbers = module.Context.enable_collective_ops, count()

    @functools.wraps(original)
    def enable_collective_ops(self: Any, *args: Any, **options: Any) -> None:
        from mwmagic.repairs import tracked

        replaces = getattr(self, "_collective_ops_server_def", None) is not None
        original(self, *args, **options)
        if tracked.tracks():
            return
        cls = sys.modules[_STRATEGY].CollectiveAllReduceStrategy
        cls._collective_key_base += STRATEGY_KEYS  # of the next strategy
        if replaces and self.coordination_service is not None:
            _await_others(self, f"mwmagic/strategies/{next(numbers)}")

    module.Context.enable_collective_ops = enable_collective_ops


def _await_others(context: Any, place: str) -> None:
    """Wait until all tasks with collectives have come to a place, as long as it takes."""
    from mwmagic.model.live import PARTNERS

    server = context._collective_ops_server_def
    context.set_config_key_value(f"{place}/{server.job_name}/{server.task_index}", "")
    for job in server.cluster.job:
        for index in job.tasks if f"{job.name}:" in PARTNERS else ():
            while not _is_set(context, f"{place}/{job.name}/{index}"):
                time.sleep(KEY_PAUSE_SECONDS)


def _is_set(context: Any, key: str) -> bool:
    """Return whether a task has said something to TensorFlow's coordination service."""
    try:
        context.get_config_key_value(key, round(KEY_SECONDS * 1000))
    except sys.modules["tensorflow"].errors.DeadlineExceededError:
        return False
    return True
