"""What a supervisor is told when it starts."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field

from .options import ClusterOptions

__all__ = ["Start"]


@dataclass(frozen=True)
class Start:
    """A cluster's declaration, and what its owner knows and the supervisor cannot.

    Parameters
    ----------
    options : ClusterOptions
        The declaration.
    env : mapping of str to str
        The owner's environment with the declared variables, which workers inherit.
    warm : bool
        Whether to keep a warm process: one is wanted, and its framework is installed.
    """

    options: ClusterOptions
    env: dict[str, str] = field(default_factory=dict)
    warm: bool = False

    def as_line(self) -> str:
        """Return it as one line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_line(cls, line: str) -> Start:
        """Read what `as_line` returned."""
        values = json.loads(line)
        return cls(**{**values, "options": ClusterOptions.from_json(values["options"])})
