"""Prepares a machine for its tasks: their shares of it, and its warm process."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from mwmagic.errors import ClusterError
from mwmagic.frameworks import framework_for

from .commands import warm_command
from .environment import task_environment
from .shares import VISIBLE, shares

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mwmagic.model.cluster import ClusterSpec, Task
    from mwmagic.model.messages import Start
    from mwmagic.model.options import ClusterOptions

    from .node import Node

__all__ = ["Preparation"]


class Preparation:
    """Shares machines out between their tasks, and warms them up."""

    def __init__(self, start: Start) -> None:
        self.start = start

    @property
    def _options(self) -> ClusterOptions:
        return self.start.options

    @property
    def wants_gpus(self) -> bool:
        """Whether the cluster asks for a number of GPUs."""
        return bool(self._options.gpus) and VISIBLE not in self._options.env

    def prepare(self, node: Node, spec: ClusterSpec, *, alone: bool) -> None:
        """Make a machine ready to start processes, and start those that wait for that."""
        node.share(self._shares(node, alone=alone))
        if self.start.warm:
            env = self.environment(node, spec, node.tasks[0], self.on(node).env)
            folder = node.disk.folder(self._options.directory)
            command = partial(
                warm_command, node.channel, framework_for(self._options.framework).warm
            )
            node.warm_up(command, self._options.preload, env, folder)
        node.proceed()

    def _shares(self, node: Node, *, alone: bool) -> dict[str, dict[str, str]]:
        """Return what each task on a machine gets of it; nothing is set where that is unknown."""
        machine = node.machine
        if machine is None and self.wants_gpus:
            raise ClusterError(f"the GPUs on {node.host.name} are unknown: {node.unknown}")
        if machine is None:
            return {}
        own = {} if node.host.here or machine.visible is None else {VISIBLE: machine.visible}
        env = {**own, **self.on(node).env}
        counts = {"gpus": self._options.gpus, "threads": self._options.threads}
        try:
            return shares(node.tasks, machine, env, self._options.env, **counts)
        except ClusterError as error:
            if alone:
                raise
            raise ClusterError(f"on {node.host.name}: {error}") from None

    def environment(
        self, node: Node, spec: ClusterSpec, task: Task, env: Mapping[str, str]
    ) -> dict[str, str]:
        """Return the environment of a task on a machine; `env` is what it inherits."""
        share = node.shares.get(str(task), {})
        return task_environment(self.on(node), spec, task, env, share)

    def on(self, node: Node) -> Start:
        """Return the start as it is on a machine: another has an environment of its own."""
        if node.host.here:
            return self.start
        return replace(self.start, env=dict(self._options.env))
