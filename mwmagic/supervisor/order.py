"""What is launched on a task."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .assigned import Assigned

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["Order"]


@dataclass(frozen=True)
class Order:
    """What is launched on a task.

    Parameters
    ----------
    script : str
        The file as the user names it; ``sys.argv[0]`` and tracebacks show it.
    source : Path
        The copy of its code in the record, which is what runs.
    args : tuple of str
        The script's arguments.
    env : mapping of str to str
        The environment that the process inherits.
    cwd : str
        The directory that it runs in.
    cell : str
        The notebook cell that the code comes from, if it comes from one.
    notebook : frozenset of str
        The names that the code uses and that only the notebook defines.
    given : mapping of str to str
        The variables of `env` that were given with the launch itself.
    attributes : mapping of str to object
        The umask, niceness and limits of the process that launched it; see `client.inheritance`.
    live : bool
        Whether it is the program that takes cells.
    keep : bool
        Whether the process stays when its program is over, and takes cells.
    answered : bool
        Whether what the program asks, by `input` or a debugger, can be answered.
    assigned : Assigned
        The variables that its code sets before it imports.
    """

    script: str
    source: Path
    args: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    cell: str = ""
    notebook: frozenset[str] = frozenset()
    given: Mapping[str, str] = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)
    live: bool = False
    keep: bool = False
    answered: bool = False
    assigned: Assigned = field(default_factory=Assigned)

    @property
    def stays(self) -> bool:
        """Whether the process stays until it is stopped, so that its end is always a failure."""
        return self.live or self.keep
