"""How soon TensorFlow notices that a peer is gone.

The tasks of a MultiWorkerMirroredStrategy send heartbeats to the coordination
service in the first of them, which gives up on a silent task after ten
seconds. TensorFlow has a setting for that, but its strategy leaves it alone.
"""

# ruff: noqa: ANN401 - TensorFlow has no annotations

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any

from mwmagic.worker.imports import after_import

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["configure_heartbeat", "install"]

_TIMEOUT = "heartbeat_timeout_in_ms"


def install(seconds: float) -> None:
    """Arrange for a shorter heartbeat timeout, once TensorFlow is imported.

    Call it before a strategy is made. It imports nothing.

    Parameters
    ----------
    seconds : float
        How long a task may be silent.
    """
    after_import(
        "tensorflow.python.eager.context", lambda context: configure_heartbeat(seconds, context)
    )


def configure_heartbeat(seconds: float, context: ModuleType) -> None:
    """Give TensorFlow's strategy a heartbeat timeout where it names none.

    Which tasks take part, and which of them leads, stays TensorFlow's own
    choice, and without a strategy nothing is configured: parameter servers,
    evaluators and work on one machine are left as they are. So is a TensorFlow
    that does not have the setting.

    Parameters
    ----------
    seconds : float
        How long a task may be silent.
    context : module
        ``tensorflow.python.eager.context``.
    """
    configure = getattr(context.Context, "configure_coordination_service", None)
    if configure is None or _TIMEOUT not in inspect.signature(configure).parameters:
        return

    @functools.wraps(configure)
    def with_timeout(self: Any, *args: Any, **options: Any) -> Any:
        jobs = {job.name for job in options.get("coordinated_jobs") or ()}
        if jobs and jobs <= {"chief", "worker"}:
            options.setdefault(_TIMEOUT, round(seconds * 1000))
        return configure(self, *args, **options)

    context.Context.configure_coordination_service = with_timeout
