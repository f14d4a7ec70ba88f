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
    from mwmagic.model.config import Config

__all__ = ["base_environment", "task_environment"]


def base_environment(config: Config, env: Mapping[str, str]) -> dict[str, str]:
    """Return what the workers of a cluster have in common.

    Parameters
    ----------
    config : Config
        The cluster, as asked for.
    env : mapping of str to str
        What workers inherit.
    """
    return {
        **default_environment(),
        **inheritable(env),
        "PYTHONUNBUFFERED": "1",
        variables.KERAS: config.keras,
        variables.HEARTBEAT: str(config.heartbeat),
        variables.DEVICES: str(config.devices),
        **option_environment(config.framework, keras=config.keras, devices=config.devices),
    }


def _share(config: Config, env: Mapping[str, str], share: Mapping[str, str]) -> dict[str, str]:
    """Return a task's share of its machine, but for what was set since the cluster was declared."""
    return {name: value for name, value in share.items() if env.get(name) == config.env.get(name)}


def task_environment(
    config: Config,
    spec: ClusterSpec,
    task: Task,
    env: Mapping[str, str],
    share: Mapping[str, str],
) -> dict[str, str]:
    """Return the environment of one task.

    Parameters
    ----------
    config : Config
        The cluster, as asked for.
    spec : ClusterSpec
        The cluster, as placed.
    task : Task
        One of its tasks.
    env : mapping of str to str
        What workers inherit; what the framework needs to meet wins over it,
        except for ``KERAS_BACKEND``.
    share : mapping of str to str
        The variables of its share of the machine.
    """
    base = base_environment(config, env)
    meeting = meeting_environment(config.framework, spec, task, base)
    return {**base, **_share(config, env, share), **meeting, variables.TASK: str(task)}
