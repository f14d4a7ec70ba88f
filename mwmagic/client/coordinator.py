"""The process that is the chief of its own cluster: a notebook with a ClusterCoordinator."""

from __future__ import annotations

import os
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from mwmagic.errors import ClusterError
from mwmagic.frameworks import framework_for, frameworks
from mwmagic.frameworks.environment import meeting_environment
from mwmagic.model.cluster import CHIEF

if TYPE_CHECKING:
    from mwmagic.model.cluster import ClusterSpec

__all__ = ["Coordinator", "server_of"]

_WORKER = Path(__file__).parents[1] / "worker"


def server_of(framework: str) -> Path:
    """Return the program that a coordinator's other tasks run."""
    name = framework_for(framework).server
    if name is None:
        having = ", ".join(one.name for one in frameworks() if one.server is not None)
        raise ClusterError(f"{framework} has no coordinator; use --framework {having}")
    return _WORKER / name


class Coordinator:
    """Sets the environment variables that make this process the chief of a cluster."""

    def __init__(self, framework: str) -> None:
        self._framework = framework
        self._before: dict[str, str | None] = {}
        self._set: dict[str, str] = {}
        self._lock = Lock()

    def meet(self, spec: ClusterSpec) -> None:
        """Set the variables by which TensorFlow finds the cluster, unless they are set."""
        with self._lock:
            wanted = meeting_environment(self._framework, spec, CHIEF, self._inherited())
            if wanted == self._set:
                return
            self._before = {name: os.environ.get(name) for name in wanted} | self._before
            self._set = wanted
            os.environ.update(wanted)

    def _inherited(self) -> dict[str, str]:
        """Return the environment as it would be without this cluster."""
        before = {name: value for name, value in self._before.items() if value is not None}
        return {name: value for name, value in os.environ.items() if name not in self._set} | before

    def leave(self) -> None:
        """Restore the previous values, except of variables that were changed since."""
        with self._lock:
            for name, value in self._set.items():
                if os.environ.get(name) != value:
                    continue
                before = self._before[name]
                if before is None:
                    del os.environ[name]
                else:
                    os.environ[name] = before
            self._before, self._set = {}, {}
