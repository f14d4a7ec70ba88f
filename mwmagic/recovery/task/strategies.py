"""How a program makes one strategy of several workers after another.

A strategy replaces all collectives of its process. A task that goes on at once may ask for those
that another task is about to replace, which then forgets it: both wait forever, or a step gets
another's tensors. And each strategy numbers its collectives like the one before it, so that two
cannot be used in turn.
"""

# ruff: noqa: ANN401 - TensorFlow has no annotations

from __future__ import annotations

import functools

from mwmagic.hooks.imports import after_import

from .private import CONTEXT, first_group, number_groups, server_of

TYPE_CHECKING = False  # a worker starts without `typing`
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

__all__ = ["install"]

STRATEGY_KEYS = 10
"""How many numbers each strategy has for these groups; it uses two."""


def install() -> None:
    """Have tasks meet after they made another strategy, and tell its collectives from the others'.

    Call it before the user's code runs. It imports nothing. Live cells meet over a line of their
    own instead (`mwmagic.recovery.task.collectives`), since nothing frees a task that waits here.
    """
    after_import(CONTEXT, _meet)


def _meet(module: ModuleType) -> None:
    original = module.Context.enable_collective_ops

    @functools.wraps(original)
    def enable_collective_ops(self: Any, *args: Any, **options: Any) -> None:
        from . import tracked

        replaces = server_of(self) is not None
        original(self, *args, **options)
        start = first_group()
        number_groups(start + STRATEGY_KEYS)  # a strategy looks this up before it comes here
        if replaces and self.coordination_service is not None and not tracked.tracks():
            _await_others(self, f"mwmagic/strategies/{start}")

    module.Context.enable_collective_ops = enable_collective_ops


def _await_others(context: Any, place: str) -> None:
    """Wait until all tasks with collectives have come to a place, as long as it takes."""
    from mwmagic.model.live import PARTNERS

    server = server_of(context)
    context.set_config_key_value(f"{place}/{server.job_name}/{server.task_index}", "")
    for job in server.cluster.job:
        for index in job.tasks if f"{job.name}:" in PARTNERS else ():
            context.get_config_key_value(f"{place}/{job.name}/{index}")  # once it is there
