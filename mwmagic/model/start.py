"""The input of a supervisor that starts."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field

from .options import ClusterOptions

__all__ = ["Start"]


@dataclass(frozen=True)
class Start:
    """A cluster's declaration, and what only its owner can know.

    Parameters
    ----------
    options : ClusterOptions
        The declaration.
    env : mapping of str to str
        The environment that workers inherit: the owner's, with the declared variables.
    warm : bool
        Whether to keep a warm process: the user wants one, and the framework is installed.
    """

    options: ClusterOptions
    env: dict[str, str] = field(default_factory=dict)
    warm: bool = False

    def as_line(self) -> str:
        """Return one line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_line(cls, line: str) -> Start:
        """Parse what `as_line` returned."""
        values = json.loads(line)
        return cls(**{**values, "options": ClusterOptions.from_json(values["options"])})
