"""How soon TensorFlow notices that a peer is gone, and in which order peers end.

The tasks of a MultiWorkerMirroredStrategy send heartbeats to the coordination
service in the first of them, the leader, which gives up on a silent task after
ten seconds. TensorFlow has a setting for that, but its strategy does not use it.
The others report an error if the leader ends before they do, even after a
successful training.
"""

# ruff: noqa: ANN401 - TensorFlow has no annotations

from __future__ import annotations

import contextlib
import functools
import sys
import time

from mwmagic.repairs.imports import after_import

TYPE_CHECKING = False  # a worker starts without `typing`, and the two imported below
if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import ModuleType
    from typing import Any

__all__ = ["LEAVE_SECONDS", "configure_heartbeat", "install", "take_leave"]

LEAVE_SECONDS = 5.0
"""Time limit for a leader's wait for the others to end."""

_CONTEXT = "tensorflow.python.eager.context"
_TIMEOUT = "heartbeat_timeout_in_ms"
_EXIT_SECONDS = 0.1  # from a task's farewell to its end, on a busy machine


def install(seconds: float) -> None:
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
            options.setdefault(_TIMEOUT, round(seconds * 1000))
        return configure(self, *args, **options)

    context.Context.configure_coordination_service = with_timeout


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
