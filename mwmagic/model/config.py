"""What a supervisor is told when it starts."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from mwmagic.gang import Policy

from .cluster import Task

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["CHIEF", "KERAS_MODES", "ON_STALL", "Config"]

CHIEF = Task("chief", 0)
"""What the owner of a cluster is, where it coordinates the cluster itself."""

KERAS_MODES = ("auto", "plain", "legacy")
"""What ``--keras`` takes: repair Keras 3, leave it alone, or use tf-keras."""

ON_STALL = ("report", "restart")
"""What ``--on-stall`` takes: say where each task is, or make the stall a failure too."""


@dataclass(frozen=True)
class Config:
    """A cluster, as its owner asked for it.

    Parameters
    ----------
    name : str
        Under which it is found again.
    directory : str
        Below which the record is kept; workers run there by default.
    tasks : sequence of str
        Their names, in rank order.
    framework, engine : str
        See `mwmagic.frameworks` and `mwmagic.engines`.
    keras : str
        One of `KERAS_MODES`.
    devices : int
        Virtual CPU devices per task; 0 leaves it to the framework.
    gpus, threads : int, optional
        As `mwmagic.supervisor.shares` takes them.
    shares : mapping
        What follows from them: for each task's name its variables.
    coordinator : bool
        Whether the owner itself is the chief of the cluster.
    policy : Policy
        What happens after a failure.
    heartbeat : float
        Seconds after which TensorFlow misses a silent peer; 0 leaves its default.
    stall : float
        Seconds without output or CPU time after which a gang counts as stalled; 0 is never.
    on_stall : str
        One of `ON_STALL`.
    warm : bool
        Whether to keep a process that has imported the framework, to fork workers from.
    detach : bool
        Whether the cluster outlives its owner.
    owner : int
        The owner's process id.
    env : mapping of str to str
        The owner's environment, which workers inherit.
    given : mapping of str to str
        What of it the owner declared for the workers.
    """

    name: str
    directory: str
    tasks: Sequence[str]
    owner: int
    framework: str = "tensorflow"
    engine: str = "local"
    keras: str = "auto"
    devices: int = 0
    gpus: int | None = None
    threads: int | None = None
    shares: dict[str, dict[str, str]] = field(default_factory=dict)
    coordinator: bool = False
    policy: Policy = field(default_factory=Policy)
    heartbeat: float = 5.0
    stall: float = 60.0
    on_stall: str = "report"
    warm: bool = True
    detach: bool = False
    env: dict[str, str] = field(default_factory=dict)
    given: dict[str, str] = field(default_factory=dict)

    def as_json(self) -> str:
        """Return it as one line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, line: str) -> Config:
        """Read what `as_json` returned."""
        values = json.loads(line)
        return cls(**{**values, "policy": Policy(**values["policy"])})

    @property
    def members(self) -> tuple[Task, ...]:
        """The tasks themselves."""
        return tuple(Task.parse(name) for name in self.tasks)

    @property
    def root(self) -> Path:
        """The directory below which the record is kept."""
        return Path(self.directory)
