"""The environment of a task."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mwmagic.frameworks.environment import (
    default_environment,
    inheritable,
    meeting_environment,
    option_environment,
)
from mwmagic.model import variables

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mwmagic.model.cluster import ClusterSpec, Task
    from mwmagic.model.messages import Start
    from mwmagic.model.options import ClusterOptions

__all__ = ["base_environment", "task_environment"]

HEARTBEAT_SECONDS = 5.0
"""Silence after which TensorFlow considers a peer lost."""


def base_environment(options: ClusterOptions, env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment that all workers of a cluster share."""
    return {
        **default_environment(),
        **inheritable(env),
        "PYTHONUNBUFFERED": "1",
        variables.KERAS: options.keras,
        variables.HEARTBEAT: str(HEARTBEAT_SECONDS),
        variables.DEVICES: str(options.devices),
        **option_environment(options.framework, keras=options.keras, devices=options.devices),
    }


def _share(start: Start, env: Mapping[str, str], share: Mapping[str, str]) -> dict[str, str]:
    """Return a task's share of its machine, without what was set since the declaration."""
    return {name: value for name, value in share.items() if env.get(name) == start.env.get(name)}


def task_environment(
    start: Start,
    spec: ClusterSpec,
    task: Task,
    env: Mapping[str, str],
    share: Mapping[str, str],
) -> dict[str, str]:
    """Return the environment of one task."""
    base = base_environment(start.options, env)
    meeting = meeting_environment(start.options.framework, spec, task, base)
    return {**base, **_share(start, env, share), **meeting, variables.TASK: str(task)}
