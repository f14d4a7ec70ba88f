"""Prepares a machine for its tasks: their shares of it, and its warm process."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import mwmagic.worker
from mwmagic.engines.engine import AGENT
from mwmagic.errors import ClusterError
from mwmagic.frameworks import framework_for

from .environment import task_environment
from .shares import VISIBLE, shares

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mwmagic.model.cluster import ClusterSpec, Task
    from mwmagic.model.options import ClusterOptions
    from mwmagic.model.start import Start

    from .node import Node

__all__ = ["BOOTSTRAP", "Preparation", "warm_command"]

BOOTSTRAP = Path(mwmagic.worker.__file__).with_name("bootstrap.py")
"""The file that runs a user's file."""


def warm_command(modules: Sequence[str]) -> list[str]:
    """Return the command of a process that imports modules, to be forked from."""
    return [sys.executable, str(AGENT), "zygote", str(BOOTSTRAP), *modules]


class Preparation:
    """Shares machines out between their tasks, and warms them up.

    Parameters
    ----------
    start : Start
        The cluster, as declared and since updated, and what its owner knows.
    """

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
        """Make a machine ready to start processes, and start those that wait for that.

        Parameters
        ----------
        node : Node
            The machine, once it is known what it has.
        spec : ClusterSpec
            The tasks and their addresses.
        alone : bool
            Whether it is the cluster's only machine, which errors need not name.

        Raises
        ------
        ClusterError
            It has fewer GPUs than requested.
        """
        node.share(self._shares(node, alone=alone))
        if self.start.warm:
            argv = warm_command(framework_for(self._options.framework).warm)
            env = self.environment(node, spec, node.tasks[0], self.start.env)
            node.warm_up(argv, env, self._options.directory)
        node.proceed()

    def _shares(self, node: Node, *, alone: bool) -> dict[str, dict[str, str]]:
        """Return what each task on a machine gets of it; nothing is set where that is unknown."""
        machine = node.machine
        if machine is None and self.wants_gpus:
            raise ClusterError(f"the GPUs on {node.host.name} are unknown: {node.unknown}")
        if machine is None:
            return {}
        own = {} if machine.visible is None else {VISIBLE: machine.visible}
        rest = {name: value for name, value in self.start.env.items() if name != VISIBLE}
        env = self.start.env if node.host.here else {**rest, **own}
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
        return task_environment(self.start, spec, task, env, share)
